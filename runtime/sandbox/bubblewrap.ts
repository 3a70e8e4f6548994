// Arguments of bubblewrap (bwrap): namespaces, mounts and environment of a confined command.
import { existsSync, lstatSync, mkdirSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ConfinedCommand, SandboxSettings } from "./sandbox.ts";

/** Path of the work folder inside the sandbox. */
export const innerWorkFolder = "/work";
/** User and group inside the sandbox: nobody. */
const NOBODY = "65534";

/** Links of merged /usr, or folders of their own. */
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
const developerEtc = [
  ...restrictedEtc,
  "fonts",
  "python3",
  "python3.11",
  "python3.12",
  "python3.13",
  "java-17-openjdk",
  "gitconfig",
  "pki/tls",
];
/** Needed to resolve names; only with the network of the host. */
const networkEtc = ["resolv.conf", "hosts", "nsswitch.conf", "gai.conf", "services", "protocols"];

/**
 * Parts of /proc that change or show the kernel. If the server runs as root, the command is root for the kernel too, although it
 * has no capabilities, so that the modes of these files do not protect them.
 */
const readOnlyProc = ["/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi"];
const hiddenProc = [
  "/proc/sysrq-trigger",
  "/proc/kcore",
  "/proc/kallsyms",
  "/proc/keys",
  "/proc/key-users",
  "/proc/timer_list",
  "/proc/latency_stats",
  "/proc/sched_debug",
  "/proc/kmsg",
  "/proc/kpagecgroup",
  "/proc/kpagecount",
  "/proc/kpageflags",
];

const identity = {
  passwd: `nobody:x:${NOBODY}:${NOBODY}:nobody:${innerWorkFolder}:/usr/sbin/nologin\n`,
  group: `nogroup:x:${NOBODY}:\n`,
};

export interface BubblewrapOptions {
  readonly settings: SandboxSettings;
  /** Private folder of the server for the files that all commands share. */
  readonly folder: string;
}

/** Writes the files that all commands share. */
export function prepareFolder(folder: string): void {
  for (const [name, text] of Object.entries(identity)) writeFileSync(join(folder, name), text, { mode: 0o644 });
}

/** Returns the folder on the host that is /tmp inside the sandbox. It is beside the work folder, and counts for the disk limit. */
export function temporaryFolderOf(workFolder: string): string {
  return `${workFolder}.tmp`;
}

/** Returns the arguments of bwrap without the command. `seccompFd`: descriptor of the filter; null: there is none. */
export function bubblewrapArguments(
  { settings, folder }: BubblewrapOptions,
  { workFolder, environment = {}, readable = [] }: ConfinedCommand,
  { seccompFd, statusFd }: { readonly seccompFd: number | null; readonly statusFd: number },
): readonly string[] {
  const { network, profile } = settings;
  const temporary = temporaryFolderOf(workFolder);
  const shared = join(temporary, ".shm");
  mkdirSync(shared, { recursive: true, mode: 0o700 });
  const etc = [...(profile === "developer" ? developerEtc : restrictedEtc), ...(network === "full" ? networkEtc : [])];
  return [
    "--unshare-all",
    ...(network === "full" ? ["--share-net"] : []),
    // The command itself is the first process of the namespace: bwrap then waits for its end, and leaves no zombie.
    ...["--unshare-user", "--as-pid-1", "--disable-userns", "--uid", NOBODY, "--gid", NOBODY],
    ...["--hostname", "sandbox", "--new-session", "--die-with-parent", "--cap-drop", "ALL"],
    ...["--ro-bind", "/usr", "/usr"],
    ...rootFolders.flatMap(rootFolder),
    ...(profile === "developer" ? ["--ro-bind-try", "/opt", "/opt"] : []),
    ...etc.flatMap((name) => ["--ro-bind-try", `/etc/${name}`, `/etc/${name}`]),
    ...Object.keys(identity).flatMap((name) => ["--ro-bind", join(folder, name), `/etc/${name}`]),
    ...readable.flatMap((path) => ["--ro-bind-try", path, path]),
    ...["--proc", "/proc", ...readOnlyProc.flatMap((path) => ["--ro-bind-try", path, path])],
    ...hiddenProc.filter(existsSync).flatMap((path) => ["--ro-bind", "/dev/null", path]),
    ...["--dev", "/dev", "--bind", shared, "/dev/shm"],
    ...["--bind", temporary, "/tmp", "--tmpfs", "/tmp/.shm", "--remount-ro", "/tmp/.shm"],
    ...["--bind", workFolder, innerWorkFolder, "--chdir", innerWorkFolder],
    // The root and /dev are file systems in memory, which a command could fill.
    ...["--remount-ro", "/dev", "--remount-ro", "/"],
    "--clearenv",
    ...Object.entries({ ...baseEnvironment(innerWorkFolder, "/tmp"), ...environment }).flatMap(([name, value]) => [
      "--setenv",
      name,
      value,
    ]),
    ...(seccompFd === null ? [] : ["--seccomp", String(seccompFd)]),
    ...["--json-status-fd", String(statusFd)],
  ];
}

/** Environment of every command. */
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

function rootFolder(path: string): readonly string[] {
  if (!existsSync(path)) return [];
  if (!lstatSync(path).isSymbolicLink()) return ["--ro-bind", path, path];
  return ["--symlink", readlinkSync(path), path];
}
