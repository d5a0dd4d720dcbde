//! Traces that `tldrs get-perfetto` writes, opened by Perfetto itself.

use std::fs;

use tests::binaries;
use tests::lab::Lab;
use tests::perfetto::{open_output, rows};
use tests::process::Process;
use tests::tldrs::run_tldrs;

/// A thread that Perfetto has no number for.
const WIDE_THREAD: u64 = 5_000_000_000;

fn lines() -> String {
    [
        r#"{"ph":"M","name":"process_name","pid":7,"tid":7,"args":{"name":"builder"}}"#,
        r#"{"ph":"B","name":"outer","cat":"build","ts":1000.5,"pid":7,"tid":7,"args":{"step":18446744073709551615}}"#,
        r#"{"ph":"X","name":"inner","ts":1001,"dur":2.25,"pid":7,"tid":7,"bind_id":"0x9","flow_out":true}"#,
        r#"{"ph":"i","name":"mark","ts":1002,"pid":7,"tid":5000000000,"args":{"list":[1,{"deep":"x"}]}}"#,
        r#"{"ph":"X","name":"next","ts":1010,"dur":1,"pid":7,"tid":5000000000,"bind_id":"0x9","flow_in":true}"#,
        // Two of one id that overlap.
        r#"{"ph":"b","name":"load","cat":"io","id":1,"ts":1020,"pid":7,"tid":7}"#,
        r#"{"ph":"b","name":"store","cat":"io","id":1,"ts":1021,"pid":7,"tid":7}"#,
        r#"{"ph":"e","name":"load","cat":"io","id":1,"ts":1022,"pid":7,"tid":7}"#,
        r#"{"ph":"e","name":"store","cat":"io","id":1,"ts":1025,"pid":7,"tid":7}"#,
        r#"{"ph":"C","name":"queue","ts":1030,"pid":7,"tid":7,"args":{"length":-3,"bytes":0.5}}"#,
        r#"{"ph":"E","name":"outer","ts":1040,"pid":7,"tid":7}"#,
        r#"not an event"#,
        r#"{"ph":"B","name":"open","ts":1050,"pid":7,"tid":7}"#,
        "",
    ]
    .join("\n")
}

#[test]
fn stored_trace_in_the_format_of_perfetto_has_all_that_its_lines_say() {
    let lab = Lab::new();
    let stored = lab.directory("stored");
    fs::write(stored.join("run-1.jsonl"), lines()).unwrap();
    let d = stored.to_str().unwrap();
    let (browser, _server) = open_output(&lab, "trace.pftrace.gz", |output| {
        let ended = run_tldrs(&lab, &["get-perfetto", "run-1", "-d", d, "-o", output]);
        assert!(ended.status.success() && ended.stdout_bytes.is_empty());
        assert!(
            ended.stderr.join("\n").contains("left out 1 lines"),
            "{:?}",
            ended.stderr
        );
    });
    assert_eq!(
        fs::read(lab.path().join("page/trace.pftrace.gz")).unwrap()[..2],
        [0x1f, 0x8b]
    );
    let rows = |sql: &str| rows(&browser, sql);
    let slices = "select s.name || ' ' || ts || ' ' || dur || ' ' || tid || ' ' || s.depth as row from slice s \
                  join thread_track k on s.track_id = k.id join thread t using (utid) order by ts";
    let wide = rows("select tid as row from thread where name like '%5000000000%'");
    let [wide] = &wide[..] else {
        panic!("one thread is TID {WIDE_THREAD}: {wide:?}");
    };
    assert_eq!(
        rows(slices),
        [
            "outer 1000500 39500 7 0".to_owned(),
            "inner 1001000 2250 7 1".to_owned(),
            format!("mark 1002000 0 {wide} 0"),
            format!("next 1010000 1000 {wide} 0"),
            "open 1050000 -1 7 0".to_owned(),
        ]
    );
    let asynchronous = "select s.name || ' ' || ts || ' ' || dur as row from slice s \
                        where track_id not in (select id from thread_track) order by ts";
    assert_eq!(
        rows(asynchronous),
        ["load 1020000 2000", "store 1021000 4000"]
    );
    let lanes = "select count(distinct track_id) as row from slice where category = 'io'";
    assert_eq!(rows(lanes), ["2"], "what does not nest is on two tracks");
    let counters = "select k.name || ' ' || ts || ' ' || value as row from counter c \
                    join counter_track k on c.track_id = k.id order by row";
    assert_eq!(
        rows(counters),
        ["queue bytes 1030000 0.5", "queue length 1030000 -3.0"]
    );
    let flows = "select a.name || ' to ' || b.name as row from flow f join slice a on f.slice_out = a.id \
                 join slice b on f.slice_in = b.id";
    assert_eq!(rows(flows), ["inner to next"]);
    let arguments = "select s.name || ' ' || a.key || ' ' || a.display_value as row from slice s \
                     join args a using (arg_set_id) where a.key like 'debug.%' order by row";
    assert_eq!(
        rows(arguments),
        [
            "inner debug.other.flow_out true",
            "mark debug.list[0] 1",
            "mark debug.list[1].deep x",
            "next debug.other.flow_in true",
            "outer debug.step 18446744073709551615"
        ]
    );
    assert_eq!(
        rows("select name as row from process where pid = 7"),
        ["builder"]
    );
}

#[test]
fn trace_of_perfetto_is_not_written_to_a_terminal_or_over_its_lines() {
    let lab = Lab::new();
    let stored = lab.directory("stored");
    let path = stored.join("run-1.jsonl");
    fs::write(&path, lines()).unwrap();
    let trace = path.to_str().unwrap();
    let ended = run_tldrs(&lab, &["get-perfetto", trace, "-o", trace]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        ended.stderr.join("\n").contains("it is the trace itself"),
        "{:?}",
        ended.stderr
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), lines());
    let mut script = lab.command("script");
    let line = format!("{} get-perfetto {trace}", binaries::tldrs().display());
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let ended = Process::start(&mut script).wait();
    let shown = ended.stdout.join("\n");
    assert_eq!(ended.status.code(), Some(1), "{shown}");
    assert!(
        shown.contains("the format is not text; name a file with -o"),
        "{shown}"
    );
}
