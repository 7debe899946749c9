// The call over WebRTC: audio travels on tracks, events on a data channel. The server plays, and knows what was heard.
const CONNECT_MS = 6000;

/** Signalling went through and the media did not: UDP is blocked between here and the server. */
export class NoMedia extends Error {}

export class WebRtcCall {
  onEvent = () => {};
  onClose = () => {};
  onProgress = () => {};
  speaking = false;
  outputNode = null;
  #closed = false;

  constructor({ key }) {
    this.key = key;
  }

  /** Resolves when events can be sent. `microphone` may be null: the call then only listens and reads. */
  async open(microphone) {
    const peer = (this.peer = new RTCPeerConnection());
    this.track = microphone?.getAudioTracks()[0] ?? null;
    if (this.track) peer.addTrack(this.track, microphone);
    else peer.addTransceiver("audio", { direction: "recvonly" });
    this.audio = new Audio();
    this.audio.autoplay = true;
    const stream = new Promise((resolve) => {
      peer.ontrack = ({ track, streams }) => resolve(streams[0] ?? new MediaStream([track]));
    });
    this.channel = peer.createDataChannel("oai-events");
    this.channel.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    await peer.setLocalDescription();
    await gathered(peer);
    await peer.setRemoteDescription({ type: "answer", sdp: await this.#call(peer.localDescription.sdp) });
    this.outputNode = this.audio.srcObject = await stream;
    await this.#opened();
    this.channel.onclose = () => this.#lost("The call was ended by the server.");
    peer.onconnectionstatechange = () => {
      if (peer.connectionState === "failed") this.#lost("The connection was lost.");
    };
  }

  send(event) {
    if (this.channel?.readyState === "open") this.channel.send(JSON.stringify(event));
  }

  hear() {}

  setMuted(muted) {
    if (this.track) this.track.enabled = !muted;
  }

  interrupt() {
    if (this.speaking) this.send({ type: "output_audio_buffer.clear" });
  }

  close() {
    const { location } = this;
    this.#closed = true;
    this.location = null;
    this.onEvent = this.onClose = () => {};
    if (this.audio) this.audio.srcObject = null;
    if (!location) return this.#end();
    // The server is told first, and then the connection closed: the other way round there would be nothing left to hang up.
    const hangUp = { method: "POST", headers: this.#headers(), keepalive: true };
    fetch(`${location}/hangup`, hangUp).catch(() => {}).finally(() => this.#end());
  }

  async #call(sdp) {
    const headers = { ...this.#headers(), "Content-Type": "application/sdp" };
    const answer = await fetch("v1/realtime/calls?model=antiphon", { method: "POST", headers, body: sdp });
    if (!answer.ok) {
      const { error } = await answer.json().catch(() => ({}));
      throw Object.assign(new Error(error?.message ?? `The server answered ${answer.status}.`), { code: error?.code });
    }
    this.location = answer.headers.get("Location");
    if (this.#closed) this.close(); // hung up while the server was answering
    return answer.text();
  }

  #headers() {
    return this.key ? { Authorization: `Bearer ${this.key}` } : {};
  }

  #opened() {
    return new Promise((resolve, reject) => {
      const fail = () => {
        this.close();
        reject(new NoMedia("Audio cannot get through to the server over UDP."));
      };
      const timer = setTimeout(fail, CONNECT_MS);
      this.channel.onopen = () => {
        clearTimeout(timer);
        resolve();
      };
      this.peer.onconnectionstatechange = () => {
        if (this.peer.connectionState !== "failed") return;
        clearTimeout(timer);
        fail();
      };
    });
  }

  #receive(event) {
    if (event.type === "output_audio_buffer.started") this.speaking = true;
    if (/^output_audio_buffer\.(stopped|cleared)$/.test(event.type)) this.speaking = false;
    this.onEvent(event);
  }

  #lost(reason) {
    const told = this.onClose;
    this.onClose = () => {};
    this.#end();
    told({ code: 1006, reason });
  }

  #end() {
    if (this.channel) this.channel.onclose = null;
    this.peer?.close();
    if (this.audio) this.audio.srcObject = null;
  }
}

/** All candidates are in the offer (there is no trickle); a slow network interface is not waited for longer than a second. */
function gathered(peer) {
  return new Promise((resolve) => {
    if (peer.iceGatheringState === "complete") return resolve();
    setTimeout(resolve, 1000);
    peer.addEventListener("icegatheringstatechange", () => peer.iceGatheringState === "complete" && resolve());
  });
}
