// The HTTP client undici, on which Node's own fetch is built, for what that fetch does not offer: proxies, and time limits.
export { Agent, fetch, ProxyAgent } from "undici";
