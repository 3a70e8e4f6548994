// Arguments of bubblewrap (bwrap): namespaces, mounts and environment of a confined command.
import { existsSync, lstatSync, mkdirSync, readdirSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { HostIsolation } from "../host-isolation.ts";
import type { ConfinedCommand, SandboxSettings } from "../sandbox.ts";
import { procMounts } from "./proc-mounts.ts";
import { seccompProgram } from "./seccomp.ts";
import { socketScopeProgram } from "./socket-scope.ts";

/** Path of the work folder inside the sandbox. */
export const innerWorkFolder = "/work";
/** User and group inside the sandbox: nobody. */
const NOBODY = "65534";

/** Folders at the root: links into /usr, or separate folders. */
const rootFolders = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/** Configuration that programs need to start, without users and secrets of the host. */
const restrictedEtc = [
  "ld.so.cache",
  "ld.so.conf",
  "ld.so.conf.d",
  "alternatives",
  "localtime",
  "ssl/certs",
  "ssl/openssl.cnf",
  "ca-certificates.conf",
  "mime.types",
];
/** Certificates on Red Hat systems. /etc/pki itself is not mounted, because it contains private keys. */
const redHatCertificates = ["pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust"];
const developerEtc = [...restrictedEtc, "fonts", "gitconfig", "crypto-policies", ...redHatCertificates];
/** Developer configuration whose name contains a version, for example python3.12. */
const developerEtcPattern = /^(?:python3|java)/;
/** Configuration for resolving host names; mounted only with the network of the host. */
const networkEtc = ["resolv.conf", "hosts", "nsswitch.conf", "gai.conf", "services", "protocols"];

const identity = {
  passwd: `nobody:x:${NOBODY}:${NOBODY}:nobody:${innerWorkFolder}:/usr/sbin/nologin\n`,
  group: `nogroup:x:${NOBODY}:\n`,
};

/** Path inside the sandbox of the program of socket-scope.ts. */
const scopePath = "/run/troupe-scope";

export interface BubblewrapOptions {
  readonly settings: SandboxSettings;
  /** Private folder of the server for the files that all commands share. */
  readonly folder: string;
  readonly isolation: HostIsolation;
}

/** Arguments that are the same for all commands. They name files in the private folder, which `commonArguments` writes. */
export interface CommonArguments {
  readonly before: readonly string[];
  /** Path of the seccomp filter on the host; null if the filter does not support this architecture. */
  readonly filter: string | null;
  /** Program that starts the command inside the sandbox; empty if the command is started directly. */
  readonly through: readonly string[];
}

/**
 * Returns the folder on the host that is /tmp inside the sandbox. It counts against the disk limit. Without `temporaryFolder`,
 * it is the path of the work folder with `.tmp` appended.
 */
export function temporaryFolderOf({ workFolder, temporaryFolder }: Folders): string {
  return temporaryFolder ?? `${workFolder}.tmp`;
}

type Folders = Pick<ConfinedCommand, "workFolder" | "temporaryFolder">;

/** Writes the files that all commands share. */
export function commonArguments({ settings, folder, isolation }: BubblewrapOptions): CommonArguments {
  const { network, profile } = settings;
  const write = (name: string, content: string | Uint8Array, mode: number): string => {
    const path = join(folder, name);
    writeFileSync(path, content, { mode });
    return path;
  };
  const program = seccompProgram({ allowsInternet: network !== "none" });
  // Without the host's network, the network namespace already separates abstract sockets, so the program is not needed.
  const scope = network === "full" && isolation.scopesSockets ? socketScopeProgram() : null;
  const etc = [
    ...(profile === "developer" ? developerNames() : restrictedEtc),
    ...(network === "full" ? networkEtc : []),
  ];
  const before = [
    "--unshare-all",
    ...(network === "full" ? ["--share-net"] : []),
    // The command itself is the first process of the PID namespace. So bwrap waits for its end and leaves no zombie.
    ...["--unshare-user", "--as-pid-1", ...(isolation.disablesNamespaces ? ["--disable-userns"] : [])],
    ...["--uid", NOBODY, "--gid", NOBODY, "--hostname", "sandbox", "--new-session", "--die-with-parent"],
    ...["--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"],
    ...rootFolders.flatMap(rootFolder),
    ...(profile === "developer" ? ["--ro-bind-try", "/opt", "/opt"] : []),
    ...etc.flatMap((name) => ["--ro-bind-try", `/etc/${name}`, `/etc/${name}`]),
    ...Object.entries(identity).flatMap(([name, text]) => ["--ro-bind", write(name, text, 0o644), `/etc/${name}`]),
    ...(scope === null ? [] : ["--ro-bind", write("scope", scope, 0o700), scopePath]),
    ...["--proc", "/proc", ...procMounts()],
  ];
  return {
    before,
    filter: program === null ? null : write("filter", program, 0o600),
    through: scope === null ? [] : [scopePath],
  };
}

/** Returns the arguments of bwrap without the command. `seccompFd`: descriptor of the seccomp filter; null = no filter. */
export function bubblewrapArguments(
  { before }: CommonArguments,
  command: ConfinedCommand,
  { seccompFd, statusFd }: { readonly seccompFd: number | null; readonly statusFd: number },
): readonly string[] {
  const { workFolder, environment = {}, readable = [], mounted = [] } = command;
  const temporary = temporaryFolderOf(command);
  const shared = join(temporary, ".shm");
  mkdirSync(shared, { recursive: true, mode: 0o700 });
  const home = command.temporaryFolder === undefined ? innerWorkFolder : "/tmp";
  const variables = { ...baseEnvironment(home, "/tmp"), ...environment };
  return [
    ...before,
    ...readable.flatMap((path) => ["--ro-bind-try", path, path]),
    ...mounted.flatMap(({ folder, at }) => ["--ro-bind", folder, at]),
    ...["--dev", "/dev", "--bind", shared, "/dev/shm"],
    ...["--bind", temporary, "/tmp", "--tmpfs", "/tmp/.shm", "--remount-ro", "/tmp/.shm"],
    ...["--bind", workFolder, innerWorkFolder, "--chdir", innerWorkFolder],
    // The root and /dev are file systems in memory, which a command could fill.
    ...["--remount-ro", "/dev", "--remount-ro", "/"],
    ...Object.entries(variables).flatMap(([name, value]) => ["--setenv", name, value]),
    ...(seccompFd === null ? [] : ["--seccomp", String(seccompFd)]),
    ...["--json-status-fd", String(statusFd)],
  ];
}

/** Returns the environment variables that every command gets. */
export function baseEnvironment(home: string, temporary: string): Readonly<Record<string, string>> {
  return {
    PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    HOME: home,
    TMPDIR: temporary,
    LANG: "C.UTF-8",
    TERM: "dumb",
    USER: "nobody",
  };
}

function developerNames(): readonly string[] {
  return [...developerEtc, ...readdirSync("/etc").filter((name) => developerEtcPattern.test(name))];
}

function rootFolder(path: string): readonly string[] {
  if (!existsSync(path)) return [];
  if (!lstatSync(path).isSymbolicLink()) return ["--ro-bind", path, path];
  return ["--symlink", readlinkSync(path), path];
}
