// MCP thread: its entry module. The thread holds the connections to the MCP servers of the settings, and its actor has the
// protocol McpCalls. The connections have a separate thread, because a server may send messages of any size at any rate.
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import { realClock } from "../../runtime/clock.ts";
import { openSandbox } from "../../runtime/sandbox/open-sandbox.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { McpCalls, McpReport, McpThreadInit } from "../api/agent/mcp.ts";
import { McpServers } from "./servers.ts";

/** Starts the thread without waiting for the servers. Throws config_invalid if the sandbox cannot be used. */
export async function start(place: PlaceContext<McpThreadInit>): Promise<null> {
  const { init } = place;
  const report = (told: McpReport): void => place.progress(told);
  const sandbox =
    init.sandbox === null
      ? null
      : openSandbox(init.sandbox, (fields, message) =>
          report({ type: "log", level: "warn", fields: { ...fields }, message }),
        );
  const servers = new McpServers({ init, clock: realClock, sandbox, report });
  const behaviour: Behaviour<McpCalls> = {
    call: (call) => new DeferredReply(servers.call(call)),
    cancel: ({ id }) => servers.cancel(id),
    answer: ({ question, answer }) => servers.answer(question, answer),
    onStop: async () => {
      await servers.stop();
      await sandbox?.close();
    },
  };
  place.system.spawn<McpCalls>("mcp", behaviour, { mailboxLimit: init.mailboxLimit });
  servers.start();
  return null;
}
