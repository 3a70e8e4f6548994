// Custom tools: tools that are not built into the server: tools of MCP servers, tools of the embedding program, functions of the
// client that are dispatched to a URL, and stand-ins for tools that cannot be called.
import { ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import type { ServerTool } from "../../api/agent/server-tools.ts";
import type { Dispatch } from "./dispatch.ts";
import { type CallContext, callKey, outcomeOfError, outcomeOfText, type RunnableTool } from "./runnable-tool.ts";

export function serverTool(tool: ServerTool): RunnableTool {
  return {
    type: "custom",
    about: tool.about,
    server: tool.server ?? null,
    run: async (call, context) => {
      const { session, client, signal, ask } = context;
      const id = callKey(call, context);
      let hasEnded = false;
      const onProgress: CallContext["onProgress"] = (progress) => {
        if (!hasEnded) context.onProgress(progress);
      };
      try {
        const result = await tool.run({ id, arguments: call.arguments, session, client, signal, onProgress, ask });
        return { ...outcomeOfText(call, result.content), status: result.status, images: result.images };
      } finally {
        hasEnded = true;
      }
    },
  };
}

export function dispatchedTool(name: string, dispatch: Dispatch): RunnableTool {
  return {
    type: "custom",
    about: { source: "user", kind: "custom", label: name },
    server: null,
    run: async (call, context) => {
      try {
        return outcomeOfText(call, await dispatch(call, callKey(call, context), context.signal));
      } catch (thrown) {
        const error = toErrorRecord(thrown);
        // The API contract defines its own format for a failed dispatch.
        return outcomeOfError(call, error, JSON.stringify({ error: error.message, tool: name, status: "failed" }));
      }
    },
  };
}

/** Stand-in for a server tool that was removed after the request was read. */
export function goneTool(name: string): RunnableTool {
  const about = { source: "external", kind: "external", label: name } as const;
  return failingTool(about, "the tool does not exist any more: its server has removed it or has gone");
}

/** Stand-in for a tool that the server does not have. Used only if client tools are disabled; otherwise the client runs the call. */
export function missingTool(name: string): RunnableTool {
  const about = { source: "user", kind: "custom", label: name } as const;
  return failingTool(about, `no tool of this name runs on the server: ${name}`);
}

function failingTool(about: RunnableTool["about"], reason: string): RunnableTool {
  return { type: "custom", about, server: null, run: () => Promise.reject(new ServerError("not_found", reason)) };
}
