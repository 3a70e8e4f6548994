// Listen: chooses the HTTP front end (uWebSockets.js if its binary loads, else node:http), and logs the choice and the reason.
// The composition root calls it with the app.

import { ServerError } from "../../runtime/errors.ts";
import { openFileLimit } from "../../runtime/host/open-files.ts";
import type { Log } from "../observe/log.ts";
import { TrustedProxies } from "./access/trusted-proxies.ts";
import type { AdmitRequest, EdgeHandler, EdgeOptions, EdgeServer, OpenEdge, SpoolFolder } from "./edge.ts";
import { nodeEdge } from "./node/edge.ts";
import { sharedPortRisk } from "./port/shared-port.ts";
import { uwsEdge } from "./uws/edge.ts";
import { loadNative, type NativePackage } from "./uws/native.ts";

const WARN_EVERY_MS = 60_000;

export type EdgeName = NativePackage | "node";
export type EdgeChoice = EdgeName | "auto";

export interface ListenOptions extends Omit<EdgeOptions, "addressOf"> {
  readonly edge: EdgeChoice;
  /** Reverse proxies whose header X-Forwarded-For counts, by address or range (see `isAddressRange`); default: none. */
  readonly trustedProxies?: readonly string[];
  readonly log: Log;
}

export interface Listener extends EdgeServer {
  readonly edgeName: EdgeName;
}

interface ListeningApp {
  readonly handle: EdgeHandler;
  readonly admit?: AdmitRequest;
  readonly spoolFolder?: SpoolFolder;
}

/** Serves `app` on an address. Throws config_invalid if the address is unavailable. */
export async function listen(app: ListeningApp, options: ListenOptions): Promise<Listener> {
  const { name, open, why } = chooseEdge(options.edge);
  const proxies = new TrustedProxies(options.trustedProxies ?? [], options.log);
  const server = await open(app.handle, {
    addressOf: proxies.addressOf,
    onFull: fullWarning(options.log),
    admit: app.admit,
    spoolFolder: app.spoolFolder,
    ...options,
  });
  options.log.debug({ edge: name }, `${name} edge: ${why}`);
  const risk = options.sharesPort ? sharedPortRisk() : null;
  if (risk !== null) options.log.warn({ port: server.port }, risk);
  options.log.info({ edge: name, host: options.host, port: server.port }, `serving on the ${name} edge`);
  return Object.assign(server, { edgeName: name });
}

/** Creates a callback that logs rejected connections, at most once per WARN_EVERY_MS. */
function fullWarning(log: Log): () => void {
  let warnedAt = Number.NEGATIVE_INFINITY;
  return () => {
    const now = performance.now();
    if (now - warnedAt < WARN_EVERY_MS) return;
    warnedAt = now;
    const limit = openFileLimit();
    log.warn({ limit }, "connections are refused: the process is close to its limit of open files (ulimit -n)");
  };
}

interface ChosenEdge {
  readonly name: EdgeName;
  readonly open: OpenEdge;
  readonly why: string;
}

function chooseEdge(choice: EdgeChoice): ChosenEdge {
  if (choice === "node") return { name: "node", open: nodeEdge, why: "chosen by configuration" };
  if (choice !== "auto") return { name: choice, open: forcedNative(choice), why: "chosen by configuration" };
  try {
    return { name: "uws", open: uwsEdge(loadNative("uws")), why: "the first choice loads here" };
  } catch (error) {
    return { name: "node", open: nodeEdge, why: `uws does not load here (${lastLine(error)})` };
  }
}

function forcedNative(name: NativePackage): OpenEdge {
  try {
    return uwsEdge(loadNative(name));
  } catch (error) {
    const message = `edge "${name}" does not load here (${lastLine(error)}); choose another one, or "auto"`;
    throw new ServerError("config_invalid", message, { param: "edge", cause: error });
  }
}

/** Returns the loader's reason for a failure, without its list of platforms and its require stack. */
function lastLine(error: unknown): string {
  const lines = (error as Error).message.split("\n").filter((line) => line !== "" && !/^(Require stack|- )/.test(line));
  return lines.at(-1) ?? "no reason given";
}
