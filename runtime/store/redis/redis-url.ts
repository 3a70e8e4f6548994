// Redis URL: the forms of state_url. `redis://[user:password@]host[:port][/db]`, `rediss://…` with TLS, and
// `unix://[user:password@localhost]/path/of.sock[?db=N]`.
import type { RedisClientOptions } from "redis";
import { ServerError } from "../../errors.ts";

const forms =
  "redis://[user:password@]host[:port][/db], rediss://… or unix://[user:password@localhost]/path/of.sock[?db=N]";

/** Returns the options of the client. Throws config_invalid; the error never contains the password. */
export function clientOptions(
  text: string,
): Pick<RedisClientOptions, "url" | "socket" | "database" | "username" | "password"> {
  const url = parsed(text);
  const database = databaseOf(url);
  const login = {
    ...(url.username === "" ? {} : { username: decodeURIComponent(url.username) }),
    ...(url.password === "" ? {} : { password: decodeURIComponent(url.password) }),
  };
  if (url.protocol === "unix:") {
    if (url.pathname.length < 2 || !["", "localhost"].includes(url.hostname)) throw invalid();
    return { socket: { path: decodeURIComponent(url.pathname), tls: false }, database, ...login };
  }
  if (url.hostname === "") throw invalid();
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const address = { host, port: url.port === "" ? 6379 : Number(url.port) };
  return { socket: url.protocol === "rediss:" ? { ...address, tls: true } : address, database, ...login };
}

/** Returns the URL without user and password, for logs and messages. */
export function shownUrl(text: string): string {
  const url = parsed(text);
  const database = databaseOf(url);
  const address = url.protocol === "unix:" ? url.pathname : url.host;
  return `${url.protocol}//${address}${database === 0 ? "" : `, database ${database}`}`;
}

function parsed(text: string): URL {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw invalid();
  }
  if (!["redis:", "rediss:", "unix:"].includes(url.protocol)) throw invalid();
  return url;
}

function databaseOf(url: URL): number {
  const given = url.protocol === "unix:" ? (url.searchParams.get("db") ?? "") : url.pathname.slice(1);
  if (given === "") return 0;
  if (!/^\d{1,5}$/.test(given)) throw invalid();
  return Number(given);
}

function invalid(): ServerError {
  return new ServerError("config_invalid", `state_url expects ${forms}`, { param: "state_url" });
}
