// Search when the site is opened from the disk, where browsers start no workers: a frame that nobody sees takes their place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const base = new URL(url, location);
      const waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const load = (address) => new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = new URL(address, base);
        script.onload = resolve;
        script.onerror = reject;
        inside.document.body.append(script);
      });
      inside.importScripts = (...addresses) => addresses.reduce((before, one) => before.then(() => load(one)), Promise.resolve());
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const deliver = (data) => inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      this.postMessage = (data) => waiting.push(data);
      this.terminate = () => frame.remove();
      load(base).then(() => {
        this.postMessage = (data) => queueMicrotask(() => deliver(data));
        waiting.forEach(deliver);
      });
    }
  };
}
