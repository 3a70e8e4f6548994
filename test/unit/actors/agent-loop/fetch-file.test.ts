import assert from "node:assert/strict";
import { createServer } from "node:http";
import { describe, it } from "node:test";
import { fetchFile, nameIn } from "../../../../actors/agent-loop/files/fetch-file.ts";
import { isPublic } from "../../../../runtime/web/addresses.ts";

const never = new AbortController().signal;

describe("a file URL", () => {
  const refused = [
    "file:///etc/passwd",
    "ftp://example.com/a",
    "data:text/plain,x",
    "http://user:secret@example.com/",
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://0/",
    "http://localhost/",
    "http://169.254.169.254/latest/meta-data/",
    "http://10.1.2.3/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.100.100.200/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "not a url",
  ];
  for (const url of refused) {
    it(`is refused: ${url}`, async () => {
      await assert.rejects(fetchFile(url, never), { code: "invalid_value", param: "file_url" });
    });
  }

  it("never reaches a server on a private address, also by name", async () => {
    let requests = 0;
    const server = createServer((_request, response) => {
      requests++;
      response.end("secret");
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as { port: number };
    await assert.rejects(fetchFile(`http://localhost:${port}/`, never), /is not public/);
    server.close();
    assert.equal(requests, 0);
  });

  it("names the file, unless files cannot have the name", () => {
    const nameOf = (path: string) => nameIn(new URL(path, "https://example.com"));
    assert.deepEqual(["/a/b%20c.pdf?x=1", "/%D0%B9.txt", "/a%3Ab.txt"].map(nameOf), ["b c.pdf", "й.txt", "a_b.txt"]);
    for (const path of ["/", "/a/..", "/report.", "/con.txt", `/${"\u65e5".repeat(100)}`]) {
      assert.equal(nameOf(path), "download", path);
    }
  });

  it("is allowed for public addresses", () => {
    for (const address of ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111"]) assert.equal(isPublic(address), true);
    for (const address of ["::ffff:1.1.1.1", "", "x"]) assert.equal(isPublic(address), false);
  });
});
