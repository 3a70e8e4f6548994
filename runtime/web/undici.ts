// The HTTP client undici, on which Node's own fetch is built. It is used for two features that Node's fetch lacks:
// proxies and time limits.
export { Agent, fetch, ProxyAgent } from "undici";
