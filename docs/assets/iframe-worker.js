// Search in pages that are opened from a disk, where browsers start no workers: runs the theme's search worker in a
// hidden frame. The theme looks for the name IFrameWorker.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(script) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      const load = (source) =>
        new Promise((done, failed) => {
          const tag = frame.contentDocument.createElement("script")
          Object.assign(tag, { src: source, onload: done, onerror: failed })
          frame.contentDocument.body.append(tag)
        })
      const loadInOrder = (sources) => sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve())
      this.inside.importScripts = (...sources) => loadInOrder(sources)
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = load(script)
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {}
  }
}
