// While something is being remembered, the part of a page marked data-live is loaded again every two seconds, as long
// as the page can be seen. What a person is typing in stays outside of it.
"use strict";

const EVERY_MS = 2000;

async function loadAgain() {
  const shown = document.querySelector("#live[data-live]");
  if (!shown) return;
  if (!document.hidden) {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#live");
      if (answer.ok && fresh && fresh.innerHTML !== shown.innerHTML) {
        const kept = document.activeElement;
        if (shown.contains(kept)) shown.toggleAttribute("data-live", fresh.hasAttribute("data-live"));
        else shown.replaceWith(document.adoptNode(fresh));
      } else if (answer.ok && fresh) {
        shown.toggleAttribute("data-live", fresh.hasAttribute("data-live"));
      }
    } catch {
      // The server is away: it is asked again.
    }
  }
  setTimeout(loadAgain, EVERY_MS);
}

setTimeout(loadAgain, EVERY_MS);
