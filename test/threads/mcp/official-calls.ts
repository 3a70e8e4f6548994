// Calls of every tool of the official MCP servers, each with a pattern that the result must match. The order
// matters, because later calls use what earlier calls created. The tool names have no server prefix.
import { join } from "node:path";

export type OfficialCall = readonly [name: string, args: unknown, result: RegExp];

export const everythingCalls: readonly OfficialCall[] = [
  ["echo", { message: "hi there" }, /^Echo: hi there$/],
  ["get-annotated-message", { messageType: "error", includeImage: true }, /Error: Operation failed[\s\S]*\[image\]/],
  ["get-env", {}, /"PATH"/],
  ["get-resource-links", { count: 2 }, /\[resource .*: demo:\/\/resource\/dynamic\/\w+\/2/],
  [
    "get-resource-reference",
    { resourceType: "Text", resourceId: 3 },
    /\[resource demo:\/\/resource\/dynamic\/text\/3\]/,
  ],
  ["get-structured-content", { location: "Chicago" }, /"conditions":/],
  ["get-sum", { a: 2, b: 40 }, /The sum of 2 and 40 is 42/],
  ["get-tiny-image", {}, /\[image\]/],
  ["gzip-file-as-resource", { name: "a.gz", data: "data:text/plain,abc" }, /\[resource .*a\.gz/],
  ["toggle-simulated-logging", {}, /(Started|Stopped) simulated/],
  ["toggle-subscriber-updates", {}, /(Started|Stopped) simulated resource update/],
  ["trigger-long-running-operation", { duration: 0.2, steps: 2 }, /Long running operation completed/],
  ["trigger-elicitation-request", {}, /declined/],
  ["list_resources", {}, /"uri":"demo:\/\/resource\/static[^"]*"[\s\S]*"uri_template":"demo:/],
  ["read_resource", { uri: "demo://resource/dynamic/text/7" }, /Resource 7/],
  ["list_prompts", {}, /"name":"simple-prompt"/],
  ["get_prompt", { name: "args-prompt", arguments: { city: "Bonn" } }, /^user: .*Bonn/],
];

/**
 * Returns calls of the filesystem server. `folder`: the folder that the server may access, or an empty folder in it.
 * Its path must contain "troupe-mcp".
 */
export function fileCalls(folder: string): readonly OfficialCall[] {
  const path = (name: string): string => join(folder, name);
  return [
    ["create_directory", { path: path("d") }, /Successfully created/],
    ["write_file", { path: path("a.txt"), content: "one\ntwo\n" }, /Successfully wrote/],
    ["edit_file", { path: path("a.txt"), edits: [{ oldText: "two", newText: "three" }] }, /\+three/],
    ["read_file", { path: path("a.txt") }, /three/],
    ["read_text_file", { path: path("a.txt"), head: 1 }, /^one/],
    ["read_multiple_files", { paths: [path("a.txt")] }, /three/],
    ["read_media_file", { path: path("a.txt") }, /not shown/],
    ["list_directory", { path: folder }, /\[FILE\] a\.txt/],
    ["list_directory_with_sizes", { path: folder }, /a\.txt/],
    ["directory_tree", { path: folder }, /"name": "a\.txt"/],
    ["move_file", { source: path("a.txt"), destination: path("d/b.txt") }, /Successfully moved/],
    ["search_files", { path: folder, pattern: "**/*.txt" }, /b\.txt/],
    ["get_file_info", { path: path("d/b.txt") }, /size: 10/],
    ["list_allowed_directories", {}, /troupe-mcp/],
  ];
}

const relations = [{ from: "Ada", to: "Bob", relationType: "knows" }];
const person = (name: string) => ({ name, entityType: "person", observations: ["is kind"] });

/** Calls of the memory server. Its memory must be empty before the first call. */
export const memoryCalls: readonly OfficialCall[] = [
  ["create_entities", { entities: [person("Ada"), person("Bob")] }, /Ada/],
  ["create_relations", { relations }, /knows/],
  ["add_observations", { observations: [{ entityName: "Ada", contents: ["likes tea"] }] }, /likes tea/],
  ["read_graph", {}, /likes tea/],
  ["search_nodes", { query: "tea" }, /Ada/],
  ["open_nodes", { names: ["Bob"] }, /Bob/],
  ["list_resources", {}, /"uri":"memory:/],
  ["read_resource", { uri: "memory://knowledge-graph" }, /likes tea/],
  ["delete_observations", { deletions: [{ entityName: "Ada", observations: ["likes tea"] }] }, /deleted/],
  ["delete_relations", { relations }, /deleted/],
  ["delete_entities", { entityNames: ["Ada"] }, /deleted/],
];
