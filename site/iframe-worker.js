// Lets the search run when the site is opened from disk, where a browser starts no workers: the worker's script runs in
// a hidden frame instead. Only what the theme's search needs of a worker is here.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(address, location.href);
      const loaded = new Promise((resolve) => script.addEventListener("load", resolve));
      frame.contentDocument.body.append(script);
      this.postMessage = async (data) => {
        await loaded;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      };
    }

    terminate() {}
  };
}
