// Client that faults.test.ts kills. It connects to a server that keeps running when its stdin is closed, then prints
// "ready".
//
// Argument: path of the server's program.
import { McpRig, nodeProcess, serverSettings } from "./rig.ts";

const [program = ""] = process.argv.slice(2);
const rig = new McpRig([serverSettings("orphaned", nodeProcess(program, ["orphaned"]))]);
await rig.start(1);
process.stdout.write("ready");
