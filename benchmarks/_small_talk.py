"""Ten exchanges of small talk that need no memory, as they stand in a session before the question."""

TALK = (
    ("ただいまー", "おかえり！", "happy", "nod"),
    ("今日は風が強かったよ", "そうなんだ、飛ばされなくてよかったね。", "happy", "nod"),
    ("ほんとだよ、傘がひっくり返りそうだった", "わあ、たいへんだったね。", "sad", "none"),
    ("ちょっとお茶いれてくるね", "うん、いってらっしゃい。", "neutral", "nod"),
    ("おまたせ。あったまるー", "ほっとするね。", "happy", "nod"),
    ("外で犬がほえてる", "お散歩の時間かな？", "happy", "tilt"),
    ("きみは寒くないの？", "ぼくはロボットだから平気だよ。", "happy", "nod"),
    ("いいなあ、うらやましい", "えへへ。でも、お茶は飲めないんだ。", "happy", "none"),
    ("あはは、それはざんねん", "ほんとにね。", "happy", "nod"),
    ("さてと、ちょっと座ろうかな", "うん、ゆっくりして。", "neutral", "nod"),
)
