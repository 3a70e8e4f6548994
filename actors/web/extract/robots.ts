// Parses a robots.txt (RFC 9309) and applies the rules for this server.
import { createRequire } from "node:module";
import { userAgent } from "../../../runtime/web/guarded-fetch.ts";

const require = createRequire(import.meta.url);
const parseRobots = require("robots-parser") as (
  url: string,
  text: string,
) => { isAllowed(url: string, agent: string): boolean | undefined };

/** Returns whether a robots.txt allows this server to read a page. */
export function robotsAllow(text: string, robotsUrl: string, url: string): boolean {
  return parseRobots(robotsUrl, text).isAllowed(url, userAgent) ?? true;
}
