import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { groupRoots } from "../../../../runtime/sandbox/linux/control-group.ts";

describe("where control groups may be created", () => {
  const base = mkdtempSync(join(tmpdir(), "troupe-groups-"));
  after(() => rmSync(base, { recursive: true }));
  /** Creates a fake tree of control groups. `enabled`: controllers that are enabled for child groups, by path. */
  const tree = (name: string, enabled: Readonly<Record<string, string>>): string => {
    for (const [path, controllers] of Object.entries(enabled)) {
      const folder = join(base, name, path);
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, "cgroup.subtree_control"), controllers);
    }
    return join(base, name);
  };

  it("is the own group if it has controllers for groups below it", () => {
    const mount = tree("own", { "/": "memory pids", "/a": "cpu memory pids" });
    const folder = join(mount, "a");
    assert.deepEqual(groupRoots("0::/a\n", mount), { version: 2, memory: folder, processes: folder });
  });

  it("is the group of a delegated service, beside the server's own, but never a slice", () => {
    const mount = tree("service", {
      "/system.slice": "memory pids",
      "/system.slice/troupe.service": "memory pids",
    });
    const folder = join(mount, "system.slice/troupe.service");
    assert.deepEqual(groupRoots("0::/system.slice/troupe.service/server\n", mount)?.memory, folder);
    const plain = tree("plain", { "/system.slice": "memory pids" });
    assert.equal(groupRoots("0::/system.slice/troupe.service\n", plain), null);
  });

  it("is nowhere without groups", () => {
    assert.equal(groupRoots("", base), null);
    assert.equal(groupRoots("0::/\n", join(base, "missing")), null);
  });

  it("is the group of each controller with version 1, in a container the mount", () => {
    const mount = tree("one", { "/memory/docker/1": "", "/pids": "" });
    const own = "4:memory:/docker/1\n8:cpu,pids:/docker/1\n0::/\n";
    assert.deepEqual(groupRoots(own, mount), {
      version: 1,
      memory: join(mount, "memory/docker/1"),
      processes: join(mount, "pids"),
    });
  });
});
