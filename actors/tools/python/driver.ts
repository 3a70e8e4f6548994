// Driver of a Python session, as Python source. It reads cells as JSON lines from descriptor 3, runs them in one namespace, and
// writes results as JSON lines to descriptor 4. Output of a cell goes to the process's stdout and stderr, also from child
// processes and C code; a mark on both ends the output of a cell.
import { marks } from "./marks.ts";

/** Maximum number of characters of a result's repr, and of an exception. */
const MAX_TEXT = 16_384;
const MAX_IMAGES = 16;
const MAX_FRAMES = 32;
/** Maximum number of bytes of all images of a cell. */
const MAX_IMAGE_BYTES = 16 * 2 ** 20;

export const driverSource = `
import ast, base64, builtins, io, json, linecache, os, signal, sys, time, traceback, types

cells, results = os.fdopen(3, "rb"), os.fdopen(4, "wb")
os.set_inheritable(3, False)
os.set_inheritable(4, False)
main = types.ModuleType("__main__")
main.__dict__["__builtins__"] = builtins
sys.modules["__main__"] = main
sys.argv = [""]
sys.path.insert(0, "")
running = False

def on_interrupt(number, frame):
    if running:
        raise KeyboardInterrupt()

signal.signal(signal.SIGINT, on_interrupt)

def cut(text):
    if len(text) <= ${MAX_TEXT}:
        return text
    return text[:${MAX_TEXT / 2}] + "\\n[%d characters left out]\\n" % (len(text) - ${MAX_TEXT}) + text[-${MAX_TEXT / 2}:]

def png_of(value):
    png = getattr(value, "_repr_png_", None)
    data = png() if callable(png) and not isinstance(value, type) else None
    return data if isinstance(data, bytes) else None

def figures():
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums():
        buffer = io.BytesIO()
        pyplot.figure(number).savefig(buffer, format="png", bbox_inches="tight")
        yield buffer.getvalue()
    pyplot.close("all")

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
    if not isinstance(value, (list, tuple)) or len(value) < 2:
        return []
    step = max(1, len(value) // ${MAX_FRAMES})
    frames = [frame_png(frame) for frame in value[::step][:${MAX_FRAMES}]]
    return [] if any(frame is None for frame in frames) else frames

def encoded(pictures, room):
    kept = []
    for picture in pictures:
        room -= len(picture)
        if room < 0:
            break
        kept.append(base64.b64encode(picture).decode("ascii"))
    return kept

def trace(error):
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == "<string>":
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))

def run(number, code):
    global running
    name = "<cell %d>" % number
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    value = None
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    running = True
    try:
        exec(compile(tree, name, "exec"), main.__dict__)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), main.__dict__)
    finally:
        running = False
    return value

def flush():
    for stream, mark in ((sys.stdout, b"${marks.stdout}"), (sys.stderr, b"${marks.stderr}")):
        try:
            stream.flush()
        except Exception:
            pass
        os.write(1 if stream is sys.stdout else 2, mark)

number = 0
stdout, stderr = sys.stdout, sys.stderr
for line in cells:
    cell = json.loads(line)
    number += 1
    started = time.perf_counter()
    reply = {"id": cell["id"], "result": None, "result_type": None, "exception": None, "images": [], "frames": []}
    try:
        value = run(number, cell["code"])
        if value is not None:
            main.__dict__["_"] = value
            reply["result"], reply["result_type"] = cut(repr(value)), type(value).__name__
        pictures = list(figures())[:${MAX_IMAGES}]
        shown = png_of(value)
        reply["images"] = encoded(pictures + ([shown] if shown is not None else []), ${MAX_IMAGE_BYTES})
        reply["frames"] = encoded(video(value), ${MAX_IMAGE_BYTES})
    except BaseException as error:
        running = False
        reply["exception"] = cut(trace(error))
    reply["ms"] = (time.perf_counter() - started) * 1000
    sys.stdout, sys.stderr = stdout, stderr
    flush()
    results.write(json.dumps(reply).encode() + b"\\n")
    results.flush()
`;
