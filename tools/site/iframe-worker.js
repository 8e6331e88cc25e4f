// The search of the site is a worker. A page that is opened from the disk can start none, so there the script of the worker runs in a
// hidden frame. The theme's own replacement is loaded from another host. The worker looks for the name IFrameWorker.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.body.appendChild(document.createElement("iframe"));
      this.frame.hidden = true;
      const inner = (this.inner = this.frame.contentWindow);
      inner.document.open();
      inner.document.write("<body></body>");
      inner.document.close();
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
      inner.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => this.load(next)), Promise.resolve());
      this.loaded = this.load(url);
    }
    load(url) {
      return new Promise((done, failed) => {
        const script = this.inner.document.createElement("script");
        Object.assign(script, {src: url, onload: done, onerror: failed});
        this.inner.document.body.append(script);
      });
    }
    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", {data})));
    }
    terminate() {
      this.frame.remove();
    }
  };
}

// The theme searches for the words that begin with a word of the query: for "I" it finds "installation", and for "translate" no
// "translation". It repeats "top-k" for each of its two words, and then finds nothing but words that begin with k.
const common = /(?<!\S)(an?|and|are|can|does?|for|how|i|if|in|is|it|my|of|on|or|the|to|what|when|where|which|why|with)(?!\S)/gi;
const simple = (query) =>
  query.replace(/[?!.,]+(?!\S)/g, "").replace(common, "").replace(/(\w{4,}?)(ing|ed|es?|s)(?!\S)/g, "$1").replace(/(\w)-(?=\w)/g, "$1 ");
const post = window.Worker.prototype.postMessage;
window.Worker.prototype.postMessage = function (message) {
  const query = typeof message.data === "string"; // the only message with a text
  post.call(this, query ? {...message, data: simple(message.data)} : message);
};
