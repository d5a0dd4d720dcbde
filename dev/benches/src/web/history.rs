//! Ten million events of a recording: how long it takes to load, open, zoom, pan, search and count
//! them, and the memory.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use ctf::model::{LogLevel, Uuid};
use ctf::write::{
    Appended, EventDeclaration, EventRecord, FieldType, MetadataText, PacketSize, StreamWriter,
    TraceDeclaration, Value as FieldValue, Width,
};
use serde_json::Value;
use tests::browser::Browser;
use tests::lab::Lab;
use tests::wait_for;
use wire::Timestamp;

use super::{Web, screenshot};
use crate::process::{cpu, peak_memory, resident_memory};

const EVENTS: u64 = 10_000_000;
const STREAMS: u64 = 64;
/// Size of each packet, in bytes.
const PACKET: usize = 64 << 10;
/// Mean time between two events of a stream, in nanoseconds.
const MEAN_GAP: u64 = 640_000;
/// The first event, in nanoseconds since 1970.
const BEGIN: u64 = 1_800_000_000_000_000_000;

/// Asks the server as the page does, over a connection of its own and with the pauses of a page,
/// and measures how long each answer takes, in milliseconds.
const REQUESTS: &str = r"
const run = async () => {
    const socket = new WebSocket(location.origin.replace('http', 'ws') + '/socket');
    socket.binaryType = 'arraybuffer';
    await new Promise(opened => { socket.onopen = opened; });
    let number = 0, onFrame = null, onReply = null;
    socket.onmessage = event => {
        if (typeof event.data === 'string') {
            const message = JSON.parse(event.data);
            if (message.type !== 'state') onReply(message);
            return;
        }
        const head = new DataView(event.data);
        socket.send(JSON.stringify({type: 'ack', frame: head.getUint32(0, true)}));
        if (head.getUint32(4, true) === number) onFrame(event.data.byteLength);
    };
    const state = __view(), tracks = state.tracks.slice(0, 26).map(track => track.id);
    const first = BigInt(FIRST), all = BigInt(ALL);
    const pause = () => new Promise(done => setTimeout(done, 40));
    const view = (from, span) => new Promise(done => {
        number += 1;
        const begun = performance.now();
        onFrame = bytes => done([performance.now() - begun, bytes]);
        const [low, high] = [from.toString(), (from + span).toString()];
        socket.send(JSON.stringify({type: 'view', number, from: low, to: high, isFollowing: false, width: 1060, tracks}));
    });
    const query = request => new Promise(done => {
        const begun = performance.now();
        onReply = reply => done([performance.now() - begun, reply]);
        socket.send(JSON.stringify({number: 1, ...request}));
    });
    const result = {zoom: [], pan: [], search: [], count: [], bytes: 0};
    const middle = first + all / 2n;
    for (let span = all; span > 20n; span = span * 2n / 3n) {
        await pause();
        const [ms, bytes] = await view(middle - span / 2n, span);
        result.zoom.push(ms);
        result.bytes = Math.max(result.bytes, bytes);
    }
    for (const part of [1n, 3n, 10n, 100n, 1000n, 100000n]) {
        const span = all / part;
        for (let step = 0n; step < 40n; step++) {
            await pause();
            result.pan.push((await view(middle + step * span / 10n - 2n * span, span))[0]);
        }
    }
    for (const text of ['orders', 'request', 'no such name', 'stock']) {
        for (let at = 0n; at < 5n; at++) {
            const from = (first + at * all / 5n).toString();
            result.search.push((await query({type: 'search', text, isWhole: false, from, isBackward: false}))[0]);
        }
    }
    for (const part of [1n, 2n, 10n, 1000n]) {
        const range = {from: (middle - all / part / 2n).toString(), to: (middle + all / part / 2n).toString()};
        const [ms, reply] = await query({type: 'count', ...range});
        result.count.push(ms);
        result.counted ??= reply.rows;
    }
    socket.close();
    return result;
};
window.__result = null;
run().then(result => { window.__result = result; }, error => { window.__result = {error: String(error)}; });
return true";

pub(crate) fn run() {
    let lab = Lab::new();
    let directory = lab.path().join("recording");
    let last = write(&directory).unwrap();
    let begun = Instant::now();
    let web = Web::start(&lab, &[directory.to_str().unwrap()]);
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    let rows = wait_for("all events are read", || {
        let events = browser.run("return window.__view ? __view().sessions[0]?.events : null");
        (events.as_u64() == Some(EVENTS)).then(|| browser.run("return __view().rows"))
    });
    println!(
        "{EVENTS} events of {STREAMS} streams, {} MB on disk: read in {:.1} s, of which {:.1} s CPU; {rows} rows; \
         test-live {} MB",
        crate::viewer::size(&directory) / 1_000_000,
        begun.elapsed().as_secs_f64(),
        cpu(web.process.id()).as_secs_f64(),
        resident_memory(web.process.id()).unwrap_or(0) / 1024,
    );
    let begun = Instant::now();
    // Another URL, so that the browser loads the page and not only shows it again.
    browser.open(&format!("{}?again", web.url));
    browser.wait_for(
        "rows are shown",
        "return window.__view && __view().shown.length > 0",
    );
    println!("opening the page: {} ms", begun.elapsed().as_millis());
    screenshot(&browser, "history");
    let script = REQUESTS
        // As texts: a number of JavaScript has no room for nanoseconds since 1970.
        .replace("FIRST", &format!("'{BEGIN}'"))
        .replace("ALL", &format!("'{}'", last - BEGIN));
    browser.run(&script);
    let result = browser.wait_for("all requests are answered", "return window.__result");
    assert!(result["error"].is_null(), "{result}");
    for (what, name) in [
        ("zooming from all to 20 ns", "zoom"),
        ("panning at six zooms", "pan"),
        ("searching for a name", "search"),
        ("counting a range", "count"),
    ] {
        println!("{what}: {}", percentiles(&result[name]));
    }
    println!(
        "largest frame {} KB; {} rows in the whole range; test-live {} MB, at most {} MB; page {} MB",
        result["bytes"].as_u64().unwrap_or(0) / 1000,
        result["counted"],
        resident_memory(web.process.id()).unwrap_or(0) / 1024,
        peak_memory(web.process.id()).unwrap_or(0) / 1024,
        super::browser_processes::page_memory(browser.driver_id()).0,
    );
}

fn percentiles(values: &Value) -> String {
    let values = values.as_array().into_iter().flatten();
    let mut values: Vec<f64> = values.filter_map(Value::as_f64).collect();
    values.sort_by(f64::total_cmp);
    let at = |part: usize| values[(values.len() - 1) * part / 100];
    format!(
        "{} requests, ms p50 {:.1}, p99 {:.1}, max {:.1}",
        values.len(),
        at(50),
        at(99),
        at(100)
    )
}

/// Writes the recording: requests with queries and rows within, as the load of `live` emits them.
/// Returns the last time.
fn write(directory: &Path) -> io::Result<u64> {
    fs::create_dir_all(directory)?;
    let mut metadata = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "bench"));
    let stream = metadata.stream(0).unwrap();
    let names = ["request_begin", "request_end", "row"]
        .into_iter()
        .map(str::to_owned);
    let queries = ["orders", "users", "prices", "stock"];
    let queries = queries
        .iter()
        .flat_map(|query| [format!("{query}_begin"), format!("{query}_end")]);
    let classes: Vec<_> = (64..)
        .zip(names.chain(queries))
        .map(|(id, name)| {
            let declaration = EventDeclaration {
                log_level: Some(LogLevel(6)),
                fields: vec![("number".into(), FieldType::Unsigned(Width::Bits64))],
                ..EventDeclaration::new(id, &name)
            };
            metadata.event(&stream, &declaration).unwrap()
        })
        .collect();
    fs::write(directory.join("metadata"), metadata.as_str())?;
    let mut last = BEGIN;
    for instance in 0..STREAMS {
        let file = File::create(directory.join(format!("channel_{instance}")))?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let cpu = u32::try_from(instance).unwrap();
        let size = PacketSize::new(PACKET, PACKET);
        let mut writer = StreamWriter::new(&stream, instance, cpu, size);
        let mut time = BEGIN + instance;
        writer.open(Timestamp(time)).unwrap();
        for number in 0..EVENTS / STREAMS {
            // Gaps of all lengths, but the same in every run.
            time += MEAN_GAP / 2 + number * 7919 % MEAN_GAP;
            let query = usize::try_from(number / 10 % 4).unwrap();
            // As `load::emit` does.
            let class = match number % 10 {
                0 => 0,
                9 => 1,
                1 | 5 => 3 + 2 * query,
                4 | 8 => 4 + 2 * query,
                _ => 2,
            };
            let event = EventRecord {
                time: Timestamp(time),
                process: 1234,
                thread: 2000 + i32::try_from(instance).unwrap(),
                values: &[FieldValue::Unsigned(number)],
            };
            if writer.append(&classes[class], &event).unwrap() == Appended::Full {
                file.write_all(writer.close(Timestamp(time)).unwrap().bytes)?;
                writer.open(Timestamp(time)).unwrap();
                let appended = writer.append(&classes[class], &event).unwrap();
                assert_eq!(appended, Appended::Written);
            }
        }
        last = last.max(time);
        file.write_all(writer.close(Timestamp(time)).unwrap().bytes)?;
        file.flush()?;
    }
    Ok(last)
}
