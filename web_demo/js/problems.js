// What can go wrong, in plain words: {title, text} for a person who knows nothing of codes.
const CODES = {
  server_busy: ["The server is full", "All its places are taken. Try again in a few seconds."],
  session_limit_exceeded: ["Too many calls with this key", "Hang up another one first."],
  rate_limit_exceeded: ["Too fast", "This key has reached its limit. Wait a minute."],
  starting: ["The server is warming up", "Its models are still being loaded."],
  server_shutting_down: ["The server is shutting down", "Try again when it is back."],
  start_failed: ["The server could not start its models", "Whoever runs it finds the reason in its log."],
  invalid_api_key: ["The key was not accepted", "Open Settings and enter the API key of this server."],
  session_expired: ["This call has reached its longest duration", "Press to begin another."],
  cannot_update_voice: ["The voice stays for this call", "It has already spoken. The new voice begins with your next call."],
};

export function ofError({ code, message }) {
  const [title, text] = CODES[code] ?? ["The server refused something", message];
  return { title, text };
}

/** Why there is no microphone, or null when there can be one. */
export function beforeMicrophone() {
  if (!window.isSecureContext) {
    return {
      title: "This address is not secure",
      text: "Browsers lend microphone and sound only to https:// and to localhost. You can still write, and read the answers.",
    };
  }
  if (!navigator.mediaDevices?.getUserMedia) {
    return { title: "This browser has no microphone access", text: "Another browser may. Writing works all the same." };
  }
  return null;
}

export function ofMicrophone(error) {
  switch (error.name) {
    case "NotAllowedError":
    case "SecurityError":
      return {
        title: "The microphone is not allowed",
        text: "Allow it for this page in the address bar, hang up and press Talk again. Until then you can write.",
      };
    case "NotFoundError":
    case "OverconstrainedError":
      return { title: "No microphone was found", text: "Connect one, hang up and press Talk again. Until then you can write." };
    case "NotReadableError":
      return { title: "The microphone is in use", text: "Another programme holds it. Close that one, hang up and press Talk again." };
    default:
      return { title: "The microphone could not be opened", text: error.message };
  }
}

export const LOST = { title: "The connection was lost", text: "Trying to reach the server again…" };
export const GONE = { title: "The server cannot be reached", text: "Look whether it is running, then press Talk." };
export const NO_UDP = {
  title: "WebRTC did not get through",
  text: "Something between you and the server blocks UDP. This call goes on over WebSocket.",
};
export const NO_WEBRTC = { title: "This server has no WebRTC", text: "This call goes on over WebSocket." };
export const SHORT_PRESS = { title: "That was short", text: "Hold the button, or the space bar, for as long as you speak." };
