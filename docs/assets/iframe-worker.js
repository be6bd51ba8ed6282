// Browsers start no worker from a file address. Where these pages are opened from a folder, a hidden
// frame runs the search instead; elsewhere this does nothing.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      inside.postMessage = (data) => this.receive("message", data);
      inside.importScripts = (...addresses) =>
        addresses.reduce((before, next) => before.then(() => this.load(next)), Promise.resolve());
      this.loaded = this.load(address);
    }

    load(address) {
      const script = this.inside.document.createElement("script");
      script.src = address;
      return new Promise((done, failed) => {
        script.onload = done;
        script.onerror = failed;
        this.inside.document.head.append(script);
      });
    }

    receive(kind, data) {
      const event = new MessageEvent(kind, { data });
      this.dispatchEvent(event);
      this[`on${kind}`]?.(event);
    }

    postMessage(data) {
      const message = () => this.inside.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded.then(message, () => this.receive("error", null));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
