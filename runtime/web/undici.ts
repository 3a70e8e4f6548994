// The HTTP client undici, on which Node's own fetch is built. It is used for features that Node's fetch lacks: proxies, time
// limits, and responses that are read without a stream object.
export { Agent, type Dispatcher, fetch, Pool, ProxyAgent } from "undici";
