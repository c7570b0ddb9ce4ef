// Draws the dashboards from a Prometheus that has seen traffic: one picture each.
//
//   node draw.mjs FOLDER PICTURES    FOLDER is what drive.py left; fails where a panel has no data

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { build } from 'esbuild';

const BOARDS = ['cost', 'reliability', 'policy'];
const WIDTH = 1600;
const ROW = 38;
const HEADER = 104;
const here = import.meta.dirname;
const run = promisify(execFile);
const [folder, pictures] = process.argv.slice(2).map((each) => path.resolve(each));

async function bundled() {
  const made = await build({
    entryPoints: [path.join(here, 'page.jsx')],
    outfile: '/page.js',
    bundle: true,
    write: false,
    minify: true,
    jsx: 'automatic',
    alias: { 'react-custom-scrollbars-2': path.join(here, 'scrollbars.js') },
    loader: { '.svg': 'dataurl', '.woff2': 'dataurl', '.png': 'dataurl', '.ttf': 'empty' },
    define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
    logLevel: 'error',
  });
  return Object.fromEntries(made.outputFiles.map((each) => [path.basename(each.path), each.contents]));
}

async function prometheus() {
  const port = 9000 + Math.floor(Math.random() * 900);
  const config = path.join(folder, 'nothing.yml');
  await writeFile(config, '{}');
  const process = spawn(
    'prometheus',
    [
      `--config.file=${config}`,
      `--storage.tsdb.path=${path.join(folder, 'data')}`,
      '--storage.tsdb.retention.time=10y',
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=error',
    ],
    { stdio: 'inherit' },
  );
  const url = `http://127.0.0.1:${port}`;
  for (let tries = 0; tries < 100; tries += 1) {
    const ready = await fetch(`${url}/-/ready`).catch(() => null);
    if (ready?.ok) return { url, process };
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error('Prometheus does not start');
}

const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json' };

function server(files, source) {
  return createServer(async (request, response) => {
    const { pathname, search } = new URL(request.url, 'http://here');
    if (pathname.startsWith('/api/')) {
      const answer = await fetch(source + pathname + search);
      response.writeHead(answer.status, { 'content-type': 'application/json' });
      response.end(await answer.text());
      return;
    }
    const name = path.basename(pathname);
    const body = files[name] ?? (await readFile(path.join(here, '..', name)).catch(() => null));
    response.writeHead(body ? 200 : 404, { 'content-type': TYPES[path.extname(name)] ?? 'text/plain' });
    response.end(body ?? '');
  });
}

async function chromium(...more) {
  const profile = await mkdtemp(path.join(tmpdir(), 'headrace-preview-'));
  const quiet = ['--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--virtual-time-budget=20000'];
  const said = await run(
    'chromium-headless-shell',
    [...quiet, `--user-data-dir=${profile}`, ...more],
    { maxBuffer: 1 << 26 },
  );
  await rm(profile, { recursive: true, force: true });
  return said.stdout;
}

async function draw(name, url, span) {
  const board = JSON.parse(await readFile(path.join(here, '..', `${name}.json`)));
  const bottom = Math.max(...board.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const page = `${url}/page.html?${new URLSearchParams({ board: name, ...span })}`;
  const size = `--window-size=${WIDTH},${HEADER + bottom * ROW}`;
  const dom = await chromium(size, '--dump-dom', page);
  const failed = dom.match(/data-failed="([^"]*)"/);
  if (failed) throw new Error(`${name}: ${failed[1]}`);
  const panels = Number(dom.match(/data-panels="(\d+)"/)?.[1]);
  const drawn = dom.match(/data-drawn="/g)?.length ?? 0;
  if (!panels || drawn !== panels) throw new Error(`${name}: ${drawn} of ${panels} panels are drawn`);
  const empty = dom.match(/No data/g)?.length ?? 0;
  if (empty) throw new Error(`${name}: ${empty} panels have no data`);
  const picture = path.join(pictures, `${name}.png`);
  await chromium(size, `--screenshot=${picture}`, page);
  await run('pngquant', ['--force', '--skip-if-larger', '--quality=70-95', '--output', picture, picture]);
  console.log(`${name}: ${panels} panels, all with data`);
}

const span = JSON.parse(await readFile(path.join(folder, 'span.json')));
const files = { ...(await bundled()), 'page.html': await readFile(path.join(here, 'page.html')) };
const source = await prometheus();
const pages = server(files, source.url).listen(0, '127.0.0.1');
await once(pages, 'listening');
try {
  for (const name of BOARDS) await draw(name, `http://127.0.0.1:${pages.address().port}`, span);
} finally {
  pages.close();
  source.process.kill();
}
