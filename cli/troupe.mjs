#!/usr/bin/env node
// Start script of troupe: builds dist/ if it is missing or older than the sources. Then it runs the program in the same
// process, so that signals reach the program. It is plain JavaScript, because it runs before anything is compiled. It uses only
// syntax that old versions of Node.js can parse, so that it can tell their users to update.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import module from "node:module";
import { homedir } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const oldestNode = [20, 11];
const root = dirname(dirname(fileURLToPath(import.meta.url)));
const program = join(root, "dist", "cli", "main.js");
/** Stamp file that cli/build.mjs writes after a build. Its modification time is the start of the build. */
const stamp = join(root, "dist", ".built");
const lock = join(root, "dist", ".building");
const sourceFolders = ["cli", "http", "actors", "engines", "runtime", "browser", "ui"];
const sourceFiles = ["package.json", "tsconfig.json", "tsconfig.build.json"];
const minOpenFiles = 256;
const lockPollMs = 100;
const lockLimitMs = 5 * 60 * 1000;
/**
 * Time in ms after which a lock without a pid counts as abandoned. A process that takes the lock writes its pid into the lock
 * at once.
 */
const lockPidLimitMs = 5000;

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);

function requireNode() {
  if (major > oldestNode[0] || (major === oldestNode[0] && minor >= oldestNode[1])) return;
  fail(`troupe needs Node ${oldestNode.join(".")} or newer; this is ${process.version}`);
}

/** Checks whether this version can build the web UI with Vite. */
function canBuild() {
  return major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19);
}

function fail(message) {
  console.error(message);
  process.exit(1);
}

/** Returns the modification time of the newest source under `path`. */
function newestSource(path) {
  let newest = 0;
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    const inner = join(path, entry.name);
    if (entry.isDirectory()) newest = Math.max(newest, newestSource(inner));
    else if (/\.(?:tsx?|css|html|svg)$/.test(entry.name)) newest = Math.max(newest, statSync(inner).mtimeMs);
  }
  return newest;
}

function isFresh() {
  if (!existsSync(program) || !existsSync(stamp)) return false;
  const times = sourceFiles.map((name) => statSync(join(root, name)).mtimeMs);
  const newest = Math.max(...times, ...sourceFolders.map((folder) => newestSource(join(root, folder))));
  return newest <= statSync(stamp).mtimeMs;
}

function hasSources() {
  return [...sourceFiles, ...sourceFolders].every((name) => existsSync(join(root, name)));
}

/**
 * Checks whether the program failed to load because of too few file descriptors. A package whose package.json cannot be opened
 * is reported as missing. So any error counts as this failure if the limit of open files is low.
 */
function isFileLimitLow(error) {
  if (error?.code === "EMFILE" || error?.code === "ENFILE") return true;
  const limit = process.report?.getReport().userLimits?.open_files?.soft;
  return typeof limit === "number" && limit < minOpenFiles;
}

/**
 * Builds once, even if troupe is started several times at once. The process that creates the directory `lock` does the build.
 */
function buildLocked() {
  mkdirSync(join(root, "dist"), { recursive: true });
  const deadline = Date.now() + lockLimitMs;
  while (!takeLock()) {
    if (Date.now() > deadline) fail(`another start has been building for too long; delete ${lock} if none is running`);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, lockPollMs);
  }
  try {
    if (!isFresh()) build();
  } finally {
    rmSync(lock, { recursive: true, force: true });
  }
}

function takeLock() {
  try {
    mkdirSync(lock);
    writeFileSync(join(lock, "pid"), String(process.pid));
    return true;
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
    removeAbandoned();
    return false;
  }
}

/**
 * Removes a lock whose owner is dead. Several processes may find this lock at the same time, so a process must not remove a
 * lock that another process has taken in the meantime.
 */
function removeAbandoned() {
  const taken = lockTime(lock);
  if (taken === null || !isAbandoned(taken)) return;
  const aside = `${lock}-${process.pid}`;
  try {
    renameSync(lock, aside);
    if (lockTime(aside) === taken) rmSync(aside, { recursive: true, force: true });
    else renameSync(aside, lock);
  } catch {
    // Another process removed the lock first.
  }
}

/** Returns the time when a lock was taken, in milliseconds since 1970; null if there is no lock. */
function lockTime(path) {
  try {
    return statSync(path).mtimeMs;
  } catch {
    return null;
  }
}

/**
 * Checks whether the process that holds the lock is dead. Between the creation of the lock and the writing of the pid, the lock
 * has no pid.
 */
function isAbandoned(taken) {
  try {
    process.kill(Number(readFileSync(join(lock, "pid"), "utf8")), 0);
    return false;
  } catch (error) {
    if (error.code === "ENOENT") return Date.now() - taken > lockPidLimitMs;
    return error.code === "ESRCH";
  }
}

function build() {
  if (!existsSync(join(root, "node_modules", "typescript"))) fail("troupe is not built yet: run `npm install` first");
  console.error("building…");
  const npm = process.env.npm_execpath ? [process.execPath, process.env.npm_execpath] : ["npm"];
  const built = spawnSync(npm[0], [...npm.slice(1), "run", "--silent", "build"], {
    cwd: root,
    encoding: "utf8",
    shell: npm.length === 1 && process.platform === "win32",
  });
  if (built.status !== 0) {
    rmSync(lock, { recursive: true, force: true });
    fail(`${built.stdout ?? ""}${built.stderr ?? ""}${built.error ?? ""}\nthe build failed; see above`);
  }
}

/**
 * Has Node.js keep the compiled code of modules in the user's cache, which versions from 22.8 on can: the next start takes less
 * processor time. Threads and child processes learn the folder from the variable. A folder that cannot be written changes nothing.
 */
function keepCompiledCode() {
  const { NODE_COMPILE_CACHE: chosen, XDG_CACHE_HOME: caches } = process.env;
  if (module.enableCompileCache === undefined || chosen !== undefined) return;
  const folder = caches || join(homeFolder(), ".cache");
  if (!isAbsolute(folder)) return;
  process.env.NODE_COMPILE_CACHE = join(folder, "troupe", "compiled");
  module.enableCompileCache(process.env.NODE_COMPILE_CACHE);
}

/** Returns the user's home folder; "" if the system does not know it. */
function homeFolder() {
  try {
    return homedir();
  } catch {
    return "";
  }
}

requireNode();
keepCompiledCode();
if (hasSources() && !isFresh()) {
  if (!canBuild()) fail(`building troupe needs Node 20.19, or 22.12 or newer; this is ${process.version}`);
  buildLocked();
}
if (!existsSync(program)) fail(`${program} is missing: this copy of troupe is incomplete`);
try {
  await import(pathToFileURL(program).href);
} catch (error) {
  if (!isFileLimitLow(error)) fail(`troupe: ${error?.stack ?? error}`);
  fail(`${error.message}
troupe expected a limit of at least ${minOpenFiles} open files; got a lower one; raise the limit, for example with "ulimit -n 4096"`);
}
