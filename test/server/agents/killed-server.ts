// Server that killed.test.ts kills. Its model calls Python and the shell in three rounds, then writes its response. The
// server prints its URL.
//
// Arguments: the state folder, and the parent of the working directories.
import type { ChatMessage } from "../../../engines/generation.ts";
import { python, shell } from "./clients.ts";
import { startAgents, type Turn } from "./rig.ts";

const [stateFolder = "", workFolder = ""] = process.argv.slice(2);
// Argument of `sleep` in seconds, unique on this machine.
const nap = `4242.${process.pid}`;
const rounds = 3;

const rig = await startAgents({ stateFolder, workFolder, write });
process.stdout.write(rig.url);

/** Returns a round's tool calls. Each call prints the question and the round, and leaves a background process running. */
function write(chat: readonly ChatMessage[]): Turn {
  const answered = new Set(chat.map(({ toolCallId }) => toolCallId));
  const isWhole = chat.every(({ toolCalls = [] }) => toolCalls.every(({ id }) => answered.has(id)));
  // The client counts a response only if its text is "done".
  if (!isWhole) return "a call has no result";
  const start = chat.findLastIndex(({ role }) => role === "user");
  const round = chat.slice(start).filter(({ role }) => role === "assistant").length;
  if (round === rounds) return "done";
  const mark = `${chat[start]?.content} round ${round}`;
  const code = `import subprocess
subprocess.Popen(["sleep", "${nap}"], start_new_session=True)
open("out.txt", "w").write("${mark} " * 1000)
print("${mark} python")`;
  return {
    calls: [
      [python, { code }],
      [shell, { commands: [`sleep ${nap} & sleep 0.05; echo "${mark} shell"`] }],
    ],
  };
}
