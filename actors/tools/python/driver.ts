// Driver of a Python session, as Python source code. It reads cells as JSON lines from descriptor 3, runs them in one namespace,
// and writes results as JSON lines to descriptor 4. Output of a cell, including that of child processes and C code, goes to
// stdout and stderr of the process. A delimiter on both streams marks the end of a cell's output.
import { marks } from "./marks.ts";

/** Maximum number of characters of the repr of a result, and of an exception. */
const MAX_TEXT = 8192;
export const MAX_IMAGES = 16;
export const MAX_FRAMES = 32;
/** Maximum number of bytes of all images of a cell. */
const MAX_IMAGE_BYTES = 16 * 2 ** 20;

export const driverSource = `
import ast, base64, builtins, io, json, linecache, os, signal, sys, time, traceback, types

cells, results = os.fdopen(3, "rb"), os.fdopen(4, "wb")
os.set_inheritable(3, False)
os.set_inheritable(4, False)
# The pipes, whatever a cell does to the descriptors 1 and 2.
out, err = os.dup(1), os.dup(2)
process = os.getpid()
main = types.ModuleType("__main__")
main.__dict__["__builtins__"] = builtins
sys.modules["__main__"] = main
sys.argv = [""]
sys.path.insert(0, "")
running = False

def on_interrupt(number, frame):
    if running:
        raise KeyboardInterrupt()

def cut(text, limit=${MAX_TEXT}):
    if len(text) <= limit:
        return text
    half = limit // 2
    return text[:half] + "\\n[%d characters left out]\\n" % (len(text) - 2 * half) + text[-half:]

def is_png(data):
    return isinstance(data, bytes) and data.startswith(b"\\x89PNG\\r\\n\\x1a\\n")

def png_of(value):
    png = getattr(value, "_repr_png_", None)
    data = png() if callable(png) and not isinstance(value, type) else None
    return [data] if is_png(data) else []

def figures():
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    numbers, pictures = pyplot.get_fignums(), []
    try:
        for number in numbers[:${MAX_IMAGES}]:
            buffer = io.BytesIO()
            pyplot.figure(number).savefig(buffer, format="png", bbox_inches="tight")
            pictures.append(buffer.getvalue())
    finally:
        pyplot.close("all")
    return pictures + [b""] * (len(numbers) - len(pictures))

def frame_png(frame):
    numpy, image = sys.modules.get("numpy"), sys.modules.get("PIL.Image")
    if image is None:
        return None
    if numpy is not None and isinstance(frame, numpy.ndarray):
        if frame.dtype != numpy.uint8 or frame.ndim not in (2, 3):
            return None
        frame = image.fromarray(frame)
    if not isinstance(frame, image.Image):
        return None
    buffer = io.BytesIO()
    frame.save(buffer, format="PNG")
    return buffer.getvalue()

def video(value):
    if not isinstance(value, (list, tuple)) or len(value) < 2 or frame_png(value[0]) is None:
        return []
    # At most so many frames, at equal distances.
    step = -(-len(value) // ${MAX_FRAMES})
    frames = [frame_png(frame) for frame in value[::step]]
    return [] if any(frame is None for frame in frames) else frames

def encoded(pictures, limit):
    kept, room = [], ${MAX_IMAGE_BYTES}
    for picture in pictures:
        room -= len(picture)
        if picture and room >= 0 and len(kept) < limit:
            kept.append(base64.b64encode(picture).decode("ascii"))
    return kept, len(pictures) - len(kept)

def trace(error):
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == "<string>":
        frames = frames.tb_next
    try:
        return cut("".join(traceback.format_exception(type(error), error, frames)))
    except Exception:
        return "%s: its description cannot be shown" % type(error).__name__

def run(code, reply):
    global running
    name = "<cell %d>" % number
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    running = True
    try:
        exec(compile(tree, name, "exec"), main.__dict__)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), main.__dict__)
        if value is not None:
            main.__dict__["_"] = value
            reply["result"], reply["result_type"] = cut(repr(value)), cut(type(value).__name__, 200)
        reply["images"], left_out = encoded(figures() + png_of(value), ${MAX_IMAGES})
        reply["frames"], frames_left_out = encoded(video(value), ${MAX_FRAMES})
        reply["left_out"] = left_out + frames_left_out
    finally:
        running = False

def end_output(stream, number, pipe, mark):
    try:
        stream.flush()
    except Exception:
        pass
    os.dup2(pipe, number)
    os.set_blocking(pipe, True)
    os.write(pipe, mark)
    if not stream.closed:
        return stream
    return open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)

number = 0
stdout, stderr = sys.stdout, sys.stderr
for line in cells:
    cell = json.loads(line)
    number += 1
    started = time.perf_counter()
    reply = {"id": cell["id"], "result": None, "result_type": None, "exception": None, "images": [], "frames": [], "left_out": 0}
    signal.signal(signal.SIGINT, on_interrupt)
    try:
        run(cell["code"], reply)
    except BaseException as error:
        reply["exception"] = trace(error)
    if os.getpid() != process:
        # The end of a child that the cell has forked. Only its parent replies.
        if reply["exception"] is not None:
            os.write(2, reply["exception"].encode("utf-8", "replace"))
        os._exit(0 if reply["exception"] is None else 1)
    reply["ms"] = (time.perf_counter() - started) * 1000
    sys.stdout = stdout = end_output(stdout, 1, out, b"${marks.stdout}")
    sys.stderr = stderr = end_output(stderr, 2, err, b"${marks.stderr}")
    results.write(json.dumps(reply).encode() + b"\\n")
    results.flush()
`;
