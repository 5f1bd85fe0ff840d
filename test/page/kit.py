"""What the tests of pages share: a job that trains in a blink, events that are written by hand, and a
browser without a window."""
import json
import os
import random
import shutil
import signal
import struct
import subprocess

NET = """name: 'tiny'
layer { name: 'data' type: 'Data' top: 'data' top: 'label' }
layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy'
  include { phase: TEST } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }
"""
JOB = """name: 'tiny'
net { file: 'net.prototxt' }
train_data { idx { images: 'images' labels: 'labels' } scale: 0.00390625 }
test_data { idx { images: 'images' labels: 'labels' } scale: 0.00390625 }
batch: 16
validation: 60
solver { base_lr: 0.01 momentum: 0.9 lr_policy: 'fixed' }
strategy { allreduce { } }
workers: 2
threads: 1
kernels: ref
"""


def write_job(folder):
    """Images of noise with a bright row for the class."""
    draw = random.Random(1)
    images, labels = struct.pack('>4I', 0x803, 600, 8, 8), struct.pack('>2I', 0x801, 600)
    for i in range(600):
        images += bytes(draw.randrange(100) + (150 if at // 8 == i % 3 else 0) for at in range(64))
        labels += bytes([i % 3])
    for name, content in (('images', images), ('labels', labels), ('net.prototxt', NET.encode()),
                          ('tiny.job', JOB.encode())):
        with open(os.path.join(folder, name), 'wb') as f:
            f.write(content)
    return os.path.join(folder, 'tiny.job')


def long_run(exchanges, losses, workers=8):
    """Events of a run of `workers`, with a lost and a replaced worker, in the order of time."""
    draw, events = random.Random(2), []
    events.append({'t': 0, 'kind': 'start', 'job': 'long', 'strategy': 'allreduce', 'nodes': workers,
                   'net': 'tiny', 'parameters': 195, 'records': {'train': 60000, 'validation': 5000},
                   'batch': 64, 'optimizer': 'SGD', 'base_lr': 0.1, 'kernels': 'dnnl', 'isa': 'avx512',
                   'ends': {'epochs': 10}})
    events += [{'t': 0.5, 'kind': 'member', 'node': n, 'what': 'join', 'view': 1} for n in range(workers)]
    for i in range(1, losses + 1):
        epoch = round(10 * i / losses, 6)
        events.append({'t': 1.0 * i, 'kind': 'loss', 'epoch': epoch, 'step': 90 * i,
                       'samples': 600000 // losses, 'loss': round(2.3 * 0.99 ** (i / 3) + draw.random() / 10, 7),
                       'rate': 0.1 if epoch < 5 else 0.01})
        if i % (losses // 20) == 0:
            events.append({'t': 1.0 * i + 0.25, 'kind': 'eval', 'epoch': epoch, 'step': 90 * i, 'set': 'validation',
                           'error': round(0.9 * 0.99 ** (i / 5), 6), 'loss': round(2.4 * 0.99 ** (i / 3), 6)})
    for i in range(exchanges):
        slow = 10 if i % 9973 == 77 else 1
        events.append({'t': round(losses * (i + 0.5) / exchanges, 6), 'kind': 'exchange', 'strategy': 'allreduce',
                       'lane': 0, 'n': i + 1, 'bytes': 12480, 'seconds': round(slow * (0.004 + draw.random() / 500), 6),
                       'waited_s': round(slow * draw.random() / 500, 6), 'waited_for': draw.choice([3, 3, 3, draw.randrange(8)])})
        if i % 97 == 77:
            events[-1].update({'blamed': 3, 'cause': 'link', 'why': 'its link sent at 38 Mbit/s'})
    events += [{'t': 0.4 * losses, 'kind': 'member', 'node': 3, 'what': 'dead', 'view': 2},
               {'t': 0.42 * losses, 'kind': 'member', 'node': 8, 'what': 'join', 'view': 3},
               {'t': 0.5 * losses, 'kind': 'checkpoint', 'n': exchanges // 2, 'bytes': 1000, 'seconds': 0.1}]
    events.sort(key=lambda e: e['t'])
    events.append({'t': losses + 1.0, 'kind': 'end', 'reason': 'epochs', 'strategy': 'allreduce', 'workers': workers,
                   'validation_error': 0.021, 'validation_loss': 0.07, 'train_loss': 0.06, 'epochs': 10,
                   'used': 600000, 'repeated': 0, 'missed': 0, 'wall_s': losses + 1.0, 'samples_per_s': 600, 'seed': 1})
    return events


def write_run(folder, events):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, 'events.jsonl'), 'w', encoding='utf-8') as f:
        for event in events:
            f.write(json.dumps(event, separators=(',', ':')) + '\n')


def read_events(folder):
    with open(os.path.join(folder, 'events.jsonl'), encoding='utf-8') as f:
        return [json.loads(line) for line in f]


def find_browser():
    for name in (os.environ.get('PACELINE_BROWSER'), 'chromium', 'chromium-browser', 'google-chrome'):
        if name and shutil.which(name):
            return shutil.which(name)
    return None


def open_page(browser, url, folder, *options):
    """The page's DOM as HTML, after its script has run. A browser that hangs is started again."""
    for attempt in range(3):
        profile, path = (os.path.join(folder, '%s-%d' % (name, attempt)) for name in ('browser', 'dom'))
        command = [browser, '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
                   '--disable-extensions', '--disable-background-networking', '--disable-component-update',
                   '--user-data-dir=' + profile, '--window-size=1360,1000', *options, '--dump-dom', url]
        with open(path, 'wb') as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL,
                                       start_new_session=True)
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        with open(path, encoding='utf-8') as f:
            text = f.read()
        if '</html>' in text:
            return text
    raise AssertionError('the browser has shown nothing')
