// The page: its elements, and who tells whom.
import { Conversation } from "./conversation.js";
import { ConversationView } from "./conversation-view.js";
import { EventLog } from "./event-log.js";
import { Recording, download } from "./recording.js";
import { Server } from "./server.js";
import { Settings } from "./settings.js";
import { Spoken } from "./spoken.js";
import { Talk } from "./talk.js";
import { Turns } from "./turns.js";

const $ = (id) => document.getElementById(id);
const root = document.documentElement;
const LABELS = { idle: "Talk", connecting: "Connecting", live: "Live", lost: "Reconnecting" };

let conversation = new Conversation();
let spoken = new Spoken();
const recording = new Recording();
const view = new ConversationView($("conversation"), $("announce"));
const log = new EventLog($("log"), $("log-count"));
const settings = new Settings($("settings"), () => {
  showMode();
  talk.update();
});
const server = new Server(() => settings.value("key"));
const turns = new Turns($("turns"), { silenceMs: () => settings.silenceMs, fetchTrace: () => server.trace(talk.session.id) });
const levels = { user: 0, agent: 0 };

const talk = new Talk(settings, server, {
  onState: showState,
  onStatus: (text) => ($("status").textContent = text),
  onProblem: showProblem,
  onSent: (event) => log.add("→", event),
  onEvent,
  onLevel: (who, rms) => (levels[who] = Math.min(1, Math.sqrt(rms) * 1.9)),
  onFrame: (who, samples, time) => settings.checked("record") && recording.add(who, samples, time),
  onProgress: (item, ms, dry) => drawSpoken(item, dry ? null : ms),
  history: () => conversation.history(),
});

function onEvent(event) {
  const now = performance.now();
  log.add("←", event);
  if (event.item?.id?.startsWith("past_")) return; // what this page itself told a new session of the old one
  spoken.apply(event, now);
  turns.apply(event, now);
  $("no-turns").hidden = turns.done.length > 0;
  const changed = conversation.apply(event);
  if (!changed) return;
  $("nothing-yet").hidden = conversation.items.length > 0;
  showDownloads();
  const unheard = changed.role === "agent" && changed.spoken && (talk.speaking || changed.state !== "done");
  view.draw(changed, conversation.items, unheard ? (changed.said ?? 0) : null);
}

function drawSpoken(id, ms) {
  const item = conversation.get(id);
  if (!item || item.heard !== null) return;
  item.said = ms === null ? item.text.length : spoken.said(id, ms, item.text);
  view.draw(item, conversation.items, item.said);
}

function showState(state) {
  document.body.dataset.state = state;
  const live = state === "live";
  $("talk-label").textContent = LABELS[state];
  $("talk").setAttribute("aria-label", live ? "Live: press to hang up" : LABELS[state]);
  $("hang-up").disabled = state === "idle";
  $("mute").disabled = !(live && talk.hasMicrophone);
  showMuted();
  $("transport").disabled = state !== "idle";
  showDownloads();
  showMode();
}

function showMode() {
  $("hold").hidden = !(settings.pushToTalk && talk.state === "live");
  // The space bar is now for speaking: on the button that has just been pressed it would hang up.
  if (!$("hold").hidden && document.activeElement === $("talk")) $("hold").focus();
}

function showDownloads() {
  $("save-wav").disabled = recording.empty;
  $("save-json").disabled = !conversation.items.length;
}

function showMuted() {
  $("mute").setAttribute("aria-pressed", talk.muted);
  $("mute").textContent = talk.muted ? "Muted" : "Mute";
}

function showProblem(problem) {
  $("notices").replaceChildren();
  if (!problem) return;
  const note = document.createElement("p");
  note.className = "notice";
  const title = document.createElement("strong");
  title.textContent = problem.title;
  note.append(title, problem.text);
  $("notices").append(note);
}

// ---- buttons and keys

function fresh() {
  conversation = new Conversation();
  spoken = new Spoken();
  recording.clear();
  view.clear();
  $("nothing-yet").hidden = false;
}

function begin() {
  fresh();
  talk.start();
}

$("talk").onclick = ({ detail }) => {
  if (detail > 1) return; // the second half of a double click
  if (talk.state === "idle") begin();
  else talk.stop();
};
$("hang-up").onclick = () => talk.stop();
$("mute").onclick = () => {
  talk.setMuted(!talk.muted);
  showMuted();
};

const hold = (down) => {
  $("hold").classList.toggle("held", down);
  if (down) talk.press();
  else talk.release();
};
$("hold").onpointerdown = () => hold(true);
for (const end of ["pointerup", "pointerleave", "pointercancel"]) $("hold").addEventListener(end, () => hold(false));
addEventListener("blur", () => hold(false)); // the key will be let go elsewhere

document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  const onHold = event.target === $("hold");
  if (event.target.closest("input, select, textarea, button, summary, a") && !onHold) return;
  if (event.code === "Space" || (onHold && event.code === "Enter")) {
    event.preventDefault();
    if (talk.state === "idle") begin();
    else if (settings.pushToTalk) hold(true);
  } else if (event.key === "Escape" && talk.state !== "idle") talk.stop();
  else if (event.key.toLowerCase() === "m" && talk.state === "live") $("mute").click();
});
document.addEventListener("keyup", (event) => {
  if (event.code === "Space" || event.code === "Enter") hold(false);
});

$("composer").onsubmit = async (event) => {
  event.preventDefault();
  const text = $("composer-text").value.trim();
  if (text && talk.state === "idle") fresh();
  if (text && (await talk.write(text))) $("composer-text").value = "";
};

// ---- downloads and the log

$("save-wav").onclick = () => download(recording.wav(), "conversation.wav");
$("save-json").onclick = () => {
  const told = { items: conversation.items, turns: turns.done, session: talk.session };
  download(new Blob([JSON.stringify(told, null, 2)], { type: "application/json" }), "conversation.json");
};
$("copy-log").onclick = async () => {
  await navigator.clipboard.writeText(log.text);
  $("copy-log").textContent = "Copied";
  setTimeout(() => ($("copy-log").textContent = "Copy all"), 1500);
};
$("clear-log").onclick = () => log.clear();

// ---- what moves

function frame() {
  const playing = spoken.playing(performance.now());
  if (playing) drawSpoken(playing.item, playing.ms);
  for (const [who, level] of Object.entries(levels)) {
    root.style.setProperty(`--${who}`, level.toFixed(3));
    $(`level-${who}`).value = level;
  }
  requestAnimationFrame(frame);
}
requestAnimationFrame(frame);

addEventListener("pagehide", () => talk.state !== "idle" && talk.stop());

async function showServer() {
  const { status, model } = await server.health().catch(() => ({ status: "no server" }));
  $("server").textContent = { ready: model, degraded: model, starting: "warming up…", failed: "not running" }[status] ?? status;
  if (status === "starting") setTimeout(showServer, 3000);
  else settings.offer(model ? await server.voices().catch(() => []) : []);
}
showServer();
showState("idle");
