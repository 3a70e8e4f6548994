// Host isolation: determines by trial which isolation this host offers.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { groupRoots } from "./linux/control-group.ts";
import { seccompProgram } from "./linux/seccomp.ts";
import { socketScopeProgram } from "./linux/socket-scope.ts";
import type { IsolationReport } from "./sandbox.ts";

const PROBE_MS = 10_000;

/** Isolation, and its features that depend on the versions of bwrap and of the kernel. */
export interface HostIsolation extends IsolationReport {
  /** Path of bwrap; null if there is no isolation. */
  readonly bwrap: string | null;
  /**
   * Whether bwrap has the option --disable-userns (0.8). Without this option, the seccomp filter still refuses new namespaces.
   */
  readonly disablesNamespaces: boolean;
  /** Whether the program of socket-scope.ts works here. */
  readonly scopesSockets: boolean;
}

/** Returns the isolation that this host offers. Takes about 20 ms. */
export function inspectIsolation(bwrap: string | null = findProgram("bwrap")): HostIsolation {
  if (process.platform !== "linux") {
    return withoutIsolation(`tools run without isolation on ${process.platform}: it is built for Linux only`);
  }
  if (bwrap === null) {
    const install = "install it with the system's package manager, for example: apt-get install bubblewrap";
    return withoutIsolation(`bubblewrap (bwrap) is not installed; ${install}`);
  }
  const problem = tryIn(bwrap, []);
  if (problem !== null) {
    return withoutIsolation(`bubblewrap cannot create its namespaces (${problem}); ${adviceOn(problem)}`);
  }
  const help = spawnSync(bwrap, ["--help"], { timeout: PROBE_MS, encoding: "utf8" });
  const scopesSockets = canScopeSockets(bwrap);
  return {
    kind: "bubblewrap",
    missing: weaknesses(scopesSockets),
    bwrap,
    disablesNamespaces: help.stdout.includes("--disable-userns"),
    scopesSockets,
  };
}

export function withoutIsolation(reason: string): HostIsolation {
  return { kind: "none", missing: [reason], bwrap: null, disablesNamespaces: false, scopesSockets: false };
}

function adviceOn(problem: string): string {
  return problem.includes("mount proc")
    ? "parts of /proc are covered here, so that a new one may not be mounted (Docker: --security-opt systempaths=unconfined; systemd: ProtectKernelTunables=no)"
    : "the kernel or the container must allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone or kernel.apparmor_restrict_unprivileged_userns; Docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined)";
}

/**
 * Runs a shell in new namespaces, started by `program`. Returns the last line of bwrap's error output; null if the shell ran.
 */
function tryIn(bwrap: string, program: readonly string[]): string | null {
  const namespaces = ["--unshare-all", "--unshare-user", "--as-pid-1", "--uid", "65534", "--gid", "65534"];
  const { status, stderr } = spawnSync(
    bwrap,
    [...namespaces, "--ro-bind", "/", "/", "--proc", "/proc", ...program, "/bin/sh", "-c", ":"],
    { timeout: PROBE_MS, encoding: "utf8" },
  );
  return status === 0 ? null : (stderr.trim().split("\n").at(-1) ?? "");
}

function canScopeSockets(bwrap: string): boolean {
  const program = socketScopeProgram();
  if (program === null) return false;
  const folder = mkdtempSync(join(tmpdir(), "troupe-scope-"));
  try {
    const path = join(folder, "scope");
    writeFileSync(path, program, { mode: 0o700 });
    return tryIn(bwrap, [path]) === null;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function weaknesses(scopesSockets: boolean): readonly string[] {
  const missing: string[] = [];
  if (seccompProgram({ allowsInternet: true }) === null) {
    missing.push(`there is no system call filter for ${process.arch}; the namespaces still isolate`);
  }
  const roots = groupRoots();
  if (roots?.memory == null || roots.processes == null) {
    missing.push(
      "no control group can be created, so the limits of memory and processes are watched every 0.1 s: they end mistakes, but code that means to can hide memory from them; delegate a cgroup to the server (systemd: Delegate=yes and DelegateSubgroup=server)",
    );
  }
  if (findProgram("prlimit") === null) {
    missing.push("prlimit (util-linux) is not installed, so single processes have no limits");
  }
  if (!scopesSockets) {
    missing.push(
      "the kernel cannot keep tools from abstract Unix sockets of this machine (Landlock of Linux 6.12), so with sandbox.network = full they reach them",
    );
  }
  return missing;
}

export function findProgram(name: string): string | null {
  const folders = [...(process.env.PATH ?? "").split(delimiter), "/usr/bin", "/bin"];
  return folders.map((folder) => join(folder, name)).find((path) => path.startsWith("/") && existsSync(path)) ?? null;
}
