//! Lines of Trace Event Format that `tldrs get-tef` writes for Perfetto, opened by Perfetto itself.

use std::fs;

use serde_json::Value;
use tests::lab::Lab;
use tests::perfetto::{open_output, rows};
use tests::tldrs::run_tldrs;

/// What `@` stands for in a line: with three more digits, microseconds since 1970.
const EPOCH: &str = "1767225600000";
/// The first time of all lines, in place of these digits.
const FIRST: i64 = 100;

/// Lines of threads and asynchronous ids, each of which shows slices that Perfetto would misread.
const SLICES: &str = r#"
{"ph":"B","name":"parent","ts":@100,"pid":11,"tid":1}
{"ph":"X","name":"child","ts":@100,"dur":5,"tts":7,"tdur":2,"pid":11,"tid":1,"args":{"step":3}}
{"ph":"E","name":"parent","ts":@110,"pid":11,"tid":1,"args":{"step":4}}
{"ph":"X","name":"one","ts":@100,"dur":50,"pid":12,"tid":1}
{"ph":"X","name":"two","ts":@120,"dur":60,"pid":12,"tid":1}
{"ph":"X","name":"three","ts":@130,"dur":5,"pid":12,"tid":1}
{"ph":"X","name":"inner","ts":@220,"dur":5,"pid":13,"tid":1}
{"ph":"X","name":"outer","ts":@220,"dur":6,"pid":13,"tid":1}
{"ph":"X","name":"around","ts":@210,"dur":20,"pid":13,"tid":1}
{"ph":"b","cat":"p","name":"top","ts":@300,"pid":14,"tid":1,"id":"1"}
{"ph":"b","cat":"p","name":"t0","ts":@300,"pid":14,"tid":1,"id":1}
{"ph":"b","cat":"p","name":"t1","ts":@301,"pid":14,"tid":1,"id":"1"}
{"ph":"e","cat":"p","name":"t0","ts":@303,"pid":14,"tid":1,"id":"1"}
{"ph":"e","cat":"p","name":"t1","ts":@304,"pid":14,"tid":1,"id":1}
{"ph":"e","cat":"p","name":"top","ts":@305,"pid":14,"tid":1,"id":"1"}
{"ph":"b","cat":"p","name":"mine","ts":@310,"pid":14,"id2":{"global":5}}
{"ph":"b","cat":"p","name":"mine","ts":@311,"pid":15,"id2":{"global":5}}
{"ph":"e","cat":"p","name":"mine","ts":@317,"pid":14,"id2":{"global":5}}
{"ph":"e","cat":"p","name":"mine","ts":@318,"pid":15,"id2":{"global":5}}
{"ph":"b","cat":"p","name":"moved","ts":@310,"pid":14,"id2":{"global":6}}
{"ph":"e","cat":"p","name":"moved","ts":@312,"pid":15,"id2":{"global":6}}
{"ph":"b","name":"no process","ts":@310,"tid":8,"id":1.5}
{"ph":"e","name":"no process","ts":@314,"tid":8,"id":1.5}
{"ph":"b","name":"no id","ts":@320,"pid":14,"tid":1}
{"ph":"B","name":"other category","cat":"a","ts":@400,"pid":16,"tid":1}
{"ph":"E","name":"other category","cat":"b","ts":@404,"pid":16,"tid":1}
{"ph":"E","name":"no begin","ts":@405,"pid":16,"tid":1}
{"ph":"B","name":"no end","ts":@410,"pid":16,"tid":1}
{"ph":"X","name":"texts","ts":"@500.25","dur":"2.5","pid":17,"tid":1}
{"ph":"X","name":"fine","ts":@510.00149,"dur":2.00149,"pid":17,"tid":1}
{"ph":"X","name":"no dur","ts":@520,"pid":17,"tid":1}
{"ph":"X","name":"negative","ts":@530,"dur":-7,"pid":17,"tid":1}
{"ph":"X","name":7,"ts":@540,"dur":1,"pid":17,"tid":1}
{"ph":"X","name":"twice","name":"last","ts":@550,"dur":1,"pid":17,"tid":1}
{"ph":"i","name":"no time","pid":17,"tid":1}
{"ph":"i","name":"no thread","ts":@560,"pid":17}
{"ph":"i","name":"no owner","ts":@561}
{"ph":"i","name":"no owner of scope","ts":@562,"s":"p"}
{"ph":"i","name":"odd scope","ts":@563,"s":"z","pid":17,"tid":1}
{"ph":"C","name":"no number","ts":@570,"pid":17,"tid":1,"args":{"a":"x"}}
"#;

/// The slices: name, begin and duration in nanoseconds on the clock of [`EPOCH`], depth. A duration
/// of -1 is one without an end.
const SLICES_SHOWN: &[(&str, i64, i64, i64)] = &[
    ("parent", 100_000, 10_000, 0),
    ("child", 100_000, 5000, 1),
    ("one", 100_000, 50_000, 0),
    ("two", 120_000, 60_000, 0),
    ("three", 130_000, 5000, 1),
    ("around", 210_000, 20_000, 0),
    ("outer", 220_000, 6000, 1),
    ("inner", 220_000, 5000, 2),
    ("top", 300_000, 5000, 0),
    ("t0", 300_000, 3000, 0),
    ("t1", 301_000, 3000, 1),
    ("mine", 310_000, 7000, 0),
    ("mine", 311_000, 7000, 0),
    ("moved", 310_000, 2000, 0),
    ("no process", 310_000, 4000, 0),
    ("no id", 320_000, 0, 0),
    ("other category", 400_000, 4000, 0),
    ("no begin", 405_000, 0, 0),
    ("no end", 410_000, -1, 0),
    ("texts", 500_250, 2500, 0),
    ("fine", 510_001, 2001, 0),
    ("no dur", 520_000, 0, 0),
    ("negative", 530_000, 0, 0),
    ("7", 540_000, 1000, 0),
    ("last", 550_000, 1000, 0),
    // Where the event before it was.
    ("no time", 550_000, 0, 1),
    ("no thread", 560_000, 0, 0),
    ("no owner", 561_000, 0, 0),
    ("no owner of scope", 562_000, 0, 0),
    ("odd scope", 563_000, 0, 0),
    ("no number", 570_000, 0, 0),
];

/// Lets `tldrs` write the lines for Perfetto. Returns the document.
fn export(lab: &Lab, lines: &str, output: &str) -> Value {
    let input = lab.path().join("lines.jsonl");
    fs::write(&input, lines.replace('@', EPOCH)).unwrap();
    let words = ["get-tef", input.to_str().unwrap(), "-o", output];
    run_tldrs(lab, &words).expect_success();
    serde_json::from_slice(&fs::read(output).unwrap()).unwrap()
}

#[test]
fn json_slices_have_the_times_and_depths_with_which_they_were_sent() {
    let lab = Lab::new();
    let mut document = Value::Null;
    let (browser, _server) = open_output(&lab, "trace.json", |output| {
        document = export(&lab, SLICES, output);
    });
    let origin = format!("{EPOCH}{FIRST}").parse::<i64>().unwrap();
    assert_eq!(document["metadata"]["ts_origin_us"], origin);
    let rows = |sql: &str| rows(&browser, sql);
    let mut want: Vec<_> = SLICES_SHOWN
        .iter()
        .map(|(name, begin, dur, depth)| {
            let begin = begin - FIRST * 1000;
            format!("{name} {begin} {dur} {depth}")
        })
        .collect();
    want.sort();
    let mut shown =
        rows("select name || ' ' || ts || ' ' || dur || ' ' || depth as row from slice");
    shown.sort();
    assert_eq!(shown, want);
    let arguments = "select name || ' ' || extract_arg(arg_set_id, 'args.step') as row from slice \
                     where extract_arg(arg_set_id, 'args.step') is not null order by row";
    assert_eq!(rows(arguments), ["child 3", "parent 4"]);
    let names = "select s.name || ' of ' || t.name as row from slice s join thread_track k on s.track_id = k.id \
                 join thread t using (utid) where s.name = 'two'";
    assert_eq!(rows(names), ["two of 1 (lane 2)"]);
    let wrapped =
        "select extract_arg(arg_set_id, 'args.a') as row from slice where name = 'no number'";
    assert_eq!(rows(wrapped), ["x"]);
}

#[test]
fn json_owners_counters_and_flows_are_those_that_were_sent() {
    let lab = Lab::new();
    let lines = r#"
{"ph":"M","name":"thread_name","pid":1,"tid":140589156634432,"args":{"name":"alpha"}}
{"ph":"M","name":"thread_name","pid":1,"tid":140588800255680,"args":{"name":7}}
{"ph":"M","name":"process_name","pid":2,"args":{"name":null}}
{"ph":"X","name":"a","ts":@100,"dur":50,"pid":1,"tid":140589156634432}
{"ph":"X","name":"b","ts":@120,"dur":60,"pid":1,"tid":140588800255680}
{"ph":"X","name":"c","ts":@120,"dur":60,"pid":1,"tid":0}
{"ph":"X","name":"d","ts":@130,"dur":60,"pid":1,"tid":1}
{"ph":"X","name":"e","ts":@130,"dur":60,"pid":0,"tid":1}
{"ph":"X","name":"f","ts":@130,"dur":60,"pid":"main","tid":-4}
{"ph":"C","name":"q","ts":@200,"pid":1,"args":{"ok":1,"text":"2.5","none":null,"odd":"x","flag":true,"far":"inf"}}
{"ph":"X","name":"out","ts":@300,"dur":10,"pid":3,"tid":1,"bind_id":"uuid-x","flow_out":true}
{"ph":"X","name":"in","ts":@320,"dur":10,"pid":3,"tid":2,"bind_id":"uuid-x","flow_in":true}
{"ph":"X","name":"nowhere","ts":@340,"dur":10,"pid":3,"tid":2,"bind_id":"0x9"}
{"ph":"B","name":"start","ts":@400,"pid":4,"tid":1}
{"ph":"s","name":"go","cat":"f","ts":@410,"pid":4,"tid":1,"id":"flow-7"}
{"ph":"E","name":"start","ts":@410,"pid":4,"tid":1}
{"ph":"X","name":"first","ts":@400,"dur":40,"pid":4,"tid":2}
{"ph":"X","name":"second","ts":@420,"dur":60,"pid":4,"tid":2}
{"ph":"f","name":"go","cat":"f","ts":@450,"pid":4,"tid":2,"id":"flow-7","bp":"e"}
"#;
    let (browser, _server) = open_output(&lab, "trace.json", |output| {
        export(&lab, lines, output);
    });
    let rows = |sql: &str| rows(&browser, sql);
    let threads = "select s.name || ': ' || coalesce(p.name, p.pid) || ' ' || coalesce(t.name, t.tid) as row \
                   from slice s join thread_track k on s.track_id = k.id join thread t using (utid) \
                   join process p using (upid) where length(s.name) = 1 order by row";
    assert_eq!(
        rows(threads),
        [
            "a: 1 alpha",
            "b: 1 7",
            "c: 1 0",
            "d: 1 1",
            "e: 0 1",
            "f: main -4"
        ]
    );
    let counters = "select k.name || ' ' || c.value as row from counter c join track k on c.track_id = k.id order by row";
    assert_eq!(rows(counters), ["q ok 1.0", "q text 2.5"]);
    let flows = "select o.name || ' to ' || i.name as row from flow f join slice o on f.slice_out = o.id \
                 join slice i on f.slice_in = i.id order by row";
    assert_eq!(rows(flows), ["out to in", "start to second"]);
}

/// Begins and ends of one thread or id, and complete events that overlap those and each other, all
/// at few times. The slices are added as text.
fn random_slices(random: &mut fastrand::Rng, row: u32, lines: &mut String, want: &mut Vec<String>) {
    let is_async = row.is_multiple_of(3);
    let owner = format!("\"pid\":{},\"tid\":{row},\"cat\":\"c\"", 20 + row);
    let (begin, end) = if is_async { ("b", "e") } else { ("B", "E") };
    let id = if is_async {
        format!(",\"id\":{row}")
    } else {
        String::new()
    };
    let mut open = Vec::new();
    let mut now = 100_i64;
    let mut shown = |name: &str, begin: i64, end: i64| {
        want.push(format!(
            "{name} {} {}",
            (begin - 100) * 1000,
            (end - begin) * 1000
        ));
    };
    for step in 0..200 {
        now += i64::from(random.u8(0..3));
        let name = format!("{row}.{step}");
        let mut edge = |phase: &str, name: &str| {
            let line =
                format!("{{\"ph\":\"{phase}\",\"name\":\"{name}\",\"ts\":@{now},{owner}{id}}}\n");
            lines.push_str(&line);
        };
        match random.u8(0..4) {
            0 => {
                edge(begin, &name);
                open.push((name, now));
            }
            1 if !open.is_empty() => {
                // Asynchronous slices end in any order.
                let place = if is_async {
                    random.usize(0..open.len())
                } else {
                    open.len() - 1
                };
                let (name, began) = open.remove(place);
                edge(end, &name);
                shown(&name, began, now);
            }
            _ if is_async => {}
            _ => {
                let dur = random.i64(0..20).min(now - 100);
                let ts = now - dur;
                let line = format!(
                    "{{\"ph\":\"X\",\"name\":\"{name}\",\"ts\":@{ts},\"dur\":{dur},{owner}}}\n"
                );
                lines.push_str(&line);
                shown(&name, ts, now);
            }
        }
    }
    for (name, began) in open.into_iter().rev() {
        let line = format!("{{\"ph\":\"{end}\",\"name\":\"{name}\",\"ts\":@999,{owner}{id}}}\n");
        lines.push_str(&line);
        shown(&name, began, 999);
    }
}

#[test]
fn json_slices_of_random_times_are_all_shown_and_within_those_around_them() {
    let lab = Lab::new();
    let seed = std::env::var("FAULT_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let mut random = fastrand::Rng::with_seed(seed.unwrap_or(7));
    let mut want = vec!["origin 0 0".to_owned()];
    let mut lines =
        "{\"ph\":\"i\",\"name\":\"origin\",\"ts\":@100,\"pid\":9,\"tid\":9}\n".to_owned();
    for row in 1..10 {
        random_slices(&mut random, row, &mut lines, &mut want);
    }
    want.sort();
    let (browser, _server) = open_output(&lab, "trace.json", |output| {
        export(&lab, &lines, output);
    });
    let mut shown = rows(
        &browser,
        "select name || ' ' || ts || ' ' || dur as row from slice",
    );
    shown.sort();
    assert_eq!(shown, want);
    let outside = "select c.name as row from slice c join slice p on c.parent_id = p.id \
                   where c.ts < p.ts or c.ts + c.dur > p.ts + p.dur";
    assert_eq!(rows(&browser, outside), [""; 0]);
}
