// Tools process: its entry module. The process runs code and shell commands in the sandbox, and its actor has the protocol Tools.
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import { openSandbox } from "../../runtime/sandbox/open-sandbox.ts";
import type { IsolationReport } from "../../runtime/sandbox/sandbox.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { Tools } from "../api/agent/tools.ts";
import type { ToolsProcessInit } from "../messages.ts";
import { WorkFolders } from "./files/work-folders.ts";
import { PythonStarter } from "./python/starter.ts";
import { ToolRunner } from "./tool-runner.ts";

/** Starts the process. Returns a report on the isolation, with the reason if tools run without it. Throws config_invalid. */
export async function start(place: PlaceContext<ToolsProcessInit>): Promise<IsolationReport> {
  const { init } = place;
  const warn = (fields: object, message: string): void => place.progress({ fields, message });
  const sandbox = openSandbox(init.sandbox, warn);
  try {
    const folders = new WorkFolders(init.folder, init.sandbox.maxDiskMb * 2 ** 20, init.userFolder);
    await folders.removeAll().catch((error: unknown) => {
      warn({ reason: String(error) }, "a folder that an earlier tools process has left could not be removed");
    });
    const python = init.python === null ? null : PythonStarter.find(init.python, sandbox);
    const { shellPath, codeTimeoutMs, shellTimeoutMs, stagingFolder } = init;
    const limits = { codeTimeoutMs, shellTimeoutMs };
    const runner = new ToolRunner({ sandbox, python, folders, shellPath, ...limits, stagingFolder, warn });
    place.system.spawn<Tools>("tools", behaviourOf(runner), { mailboxLimit: init.mailboxLimit });
    return sandbox.isolation;
  } catch (error) {
    await sandbox.close();
    throw error;
  }
}

function behaviourOf(runner: ToolRunner): Behaviour<Tools> {
  return {
    run: (call) => new DeferredReply(runner.run(call)),
    cancel: (message) => runner.cancel(message),
    mount: (message) => new DeferredReply(runner.mount(message)),
    mountSkills: (message) => new DeferredReply(runner.mountSkills(message)),
    closeSession: (message) => new DeferredReply(runner.closeSession(message)),
    onStop: () => runner.close(),
  };
}
