// Images from Python tool calls with the real libraries: matplotlib figures, Pillow images, and video frames.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { ToolsRig } from "../../threads/tools/rig.ts";
import { pythonEnvironment } from "./environment.ts";

describe("pictures of a Python cell", () => {
  let rig: ToolsRig;

  before(async () => {
    rig = new ToolsRig({ python: await pythonEnvironment(), codeTimeoutMs: 60_000 });
    await rig.client.start();
  });
  after(async () => {
    await rig.stop();
    rig.dispose();
  });

  const sizeOf = (picture: string | undefined): readonly number[] => {
    const png = Buffer.from(picture ?? "", "base64");
    assert.equal(png.subarray(1, 4).toString(), "PNG");
    return [png.readUInt32BE(16), png.readUInt32BE(20)];
  };

  it("are the open figures of matplotlib, each once", async () => {
    const two =
      "import matplotlib.pyplot as plt\nfor n in (1, 2):\n    plt.figure(n, figsize=(2, 1))\n    plt.plot([n, 2])";
    const { images, model } = await rig.python(two);
    assert.equal(model.exception, null);
    assert.equal(images.length, 2);
    assert.ok(images.every((image) => sizeOf(image)[0]! > 100));
    assert.deepEqual((await rig.python("plt.show()")).images, []);
  });

  it("are files too, if the cell saves the figure", async () => {
    const { images, files } = await rig.python("plt.plot([1, 3])\nplt.savefig('plot.png')");
    assert.equal(images.length, 1);
    assert.deepEqual(
      files.map(({ name }) => name),
      ["plot.png"],
    );
  });

  it("are the image that is the result", async () => {
    const { images } = await rig.python("from PIL import Image\nImage.new('RGB', (30, 20))");
    assert.deepEqual(images.map(sizeOf), [[30, 20]]);
  });

  it("are frames, at most 32 at equal distances, if the result is a list of images or arrays", async () => {
    const { videoFrames } = await rig.python("[Image.new('L', (n, 5)) for n in range(1, 65)]");
    assert.deepEqual(
      videoFrames.map((frame) => sizeOf(frame)[0]),
      Array.from({ length: 32 }, (_, i) => 2 * i + 1),
    );
    const arrays = await rig.python("import numpy\n[numpy.zeros((4, 6, 3), numpy.uint8)] * 3");
    assert.deepEqual(arrays.videoFrames.map(sizeOf), Array(3).fill([6, 4]));
  });
});
