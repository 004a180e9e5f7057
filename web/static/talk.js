// The talk without loading the page again: words go out, the new exchange comes back as HTML, the face follows it.
// The server's synthesis speaks where one is set, else a voice of the device. The microphone is offered only where the
// browser itself, without a service elsewhere, understands what it hears.
"use strict";

const form = document.getElementById("talk");
const face = document.getElementById("face");
const exchanges = document.getElementById("exchanges");
const fault = document.getElementById("fault");
const words = form.elements.namedItem("text");
const send = form.querySelector("button:not([type])");
const listen = document.getElementById("listen");
const speak = document.getElementById("speak");
const tongue = { ja: "ja-JP", en: "en-US" }[form.dataset.language] || "ja-JP";

function show(emotion, action) {
  face.dataset.emotion = emotion;
  face.querySelector("title").textContent = face.getAttribute("data-name-" + emotion) || emotion;
  face.dataset.action = "none";
  face.getBoundingClientRect(); // the same action twice is two movements
  face.dataset.action = action;
}

function complain(sentence) {
  fault.textContent = sentence;
  fault.hidden = !sentence;
}

function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function answer(text) {
  const body = new URLSearchParams(new FormData(form));
  body.set("text", text);
  body.set("key", newKey());
  const reply = await fetch(form.action, { method: "POST", body, headers: { "X-Part": "1", Accept: "text/html" } });
  const part = new DOMParser().parseFromString(await reply.text(), "text/html");
  const exchange = part.querySelector(".exchange");
  if (reply.ok && exchange) return document.adoptNode(exchange);
  throw new Error(part.querySelector(".fault")?.textContent.trim() || form.dataset.fault);
}

async function talk(text) {
  complain("");
  send.disabled = true;
  show("neutral", "look_up");
  try {
    const exchange = await answer(text);
    document.getElementById("hint")?.remove();
    exchanges.append(exchange);
    words.value = "";
    show(exchange.dataset.emotion, exchange.dataset.action);
    exchange.scrollIntoView({ block: "nearest" });
    say(exchange);
  } catch (error) {
    show("sad", "none");
    complain(error instanceof TypeError ? form.dataset.fault : error.message);
  }
  send.disabled = false;
  words.focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = words.value.trim();
  if (text && !send.disabled) talk(text);
});

// --- speaker ---

function voice() {
  const all = window.speechSynthesis?.getVoices() || [];
  return all.find((one) => one.localService && one.lang.replace("_", "-").startsWith(tongue.slice(0, 2)));
}

function hush() {
  window.speechSynthesis?.cancel();
  for (const audio of document.querySelectorAll("audio")) audio.pause();
}

function say(exchange) {
  hush();
  if (speak.getAttribute("aria-pressed") !== "true") return;
  const audio = exchange.querySelector("audio");
  const text = exchange.querySelector(".reply").textContent;
  if (!audio) return sayHere(text);
  audio.onplaying = () => face.toggleAttribute("data-speaking", true);
  audio.onpause = audio.onended = () => face.toggleAttribute("data-speaking", false);
  audio.play().catch((error) => {
    if (error.name === "NotSupportedError") sayHere(text); // there is no speech: the synthesis failed
  });
}

function sayHere(text) {
  if (!voice()) return;
  const utterance = new SpeechSynthesisUtterance(text);
  utterance.voice = voice();
  utterance.lang = tongue;
  utterance.onstart = () => face.toggleAttribute("data-speaking", true);
  utterance.onend = utterance.onerror = () => face.toggleAttribute("data-speaking", false);
  speechSynthesis.speak(utterance);
}

function offerSpeaker() {
  speak.hidden = !("speaks" in form.dataset || voice());
}

offerSpeaker();
window.speechSynthesis?.addEventListener?.("voiceschanged", offerSpeaker);
speak.addEventListener("click", () => {
  const on = speak.getAttribute("aria-pressed") !== "true";
  speak.setAttribute("aria-pressed", String(on));
  if (!on) hush();
});

// --- microphone ---

async function offerMicrophone() {
  const Recognition = window.SpeechRecognition;
  if (!Recognition?.available) return; // an older browser would send the sound to a service of its maker
  if ((await Recognition.available({ langs: [tongue], processLocally: true })) !== "available") return;
  listen.hidden = false;
  listen.addEventListener("click", () => {
    const heard = new Recognition();
    heard.lang = tongue;
    heard.processLocally = true;
    heard.onresult = (event) => talk(event.results[0][0].transcript);
    heard.onend = () => complain("");
    heard.onerror = () => complain(form.dataset.fault);
    complain(form.dataset.listening);
    heard.start();
  });
}

offerMicrophone().catch(() => {});
