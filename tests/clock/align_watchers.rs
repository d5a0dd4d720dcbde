//! `--align` of the commands that watch sessions: `test-live web` and `test-live top`.

use std::time::{SystemTime, UNIX_EPOCH};

use tests::browser::Browser;
use tests::lab::Lab;
use tests::process::Process;
use tests::{test_live, wait_for};

use crate::align::{HOSTS, SECOND, start_hosts, start_relay};
use crate::samples::stop;

#[test]
fn page_shows_events_at_the_time_of_the_relay_and_how_exact_that_is() {
    let lab = Lab::new();
    let relay_shift = -100 * SECOND;
    let relay = start_relay(&lab, relay_shift, &[]);
    let hosts = start_hosts(&lab, &relay);
    let target = format!("net://{}", relay.live);
    let options = [
        "web",
        "--listen=127.0.0.1:0",
        "--seek=beginning",
        "--align",
        &target,
    ];
    let web = test_live::start(&lab, &options);
    let url = wait_for("the URL", || {
        let lines = web.stdout();
        Some(lines.first()?.strip_prefix("open ")?.to_owned())
    });
    let browser = Browser::start(&lab);
    browser.open(&format!("{url}#follow=600000000000"));
    for host in ["robot-7: -10", "robot-8: -99"] {
        let script = format!(
            "return window.__view && __view().sessions.some(s => s.clock.startsWith('{host}')
                 && s.clock.includes(' ± ') && s.clock.endsWith(' samples)'))"
        );
        browser.wait_for("the offset is shown", &script);
    }
    let row = browser.wait_for("an event", "return __view().shown[0]");
    let begin: i64 = row["begin"].as_str().unwrap().parse().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_nanos()).unwrap() + relay_shift;
    assert!((now - begin).abs() < 100 * SECOND, "{now} {row}");
    hosts.into_iter().for_each(stop);
}

#[test]
fn top_says_how_hosts_are_aligned() {
    let lab = Lab::new();
    let relay = start_relay(&lab, 0, &[]);
    let hosts = start_hosts(&lab, &relay);
    let target = format!("net://{}", relay.live);
    let options = ["top", "--batch", "-n", "3", "--align", &target];
    let ended = Process::start(&mut test_live::command(&lab, &options)).wait();
    hosts.into_iter().for_each(stop);
    for (host, _) in HOSTS {
        let offset = format!("{host}: ");
        let is_told = |line: &String| line.contains(&offset) && line.contains(" ± ");
        assert!(ended.stderr.iter().any(is_told), "{:?}", ended.stderr);
    }
}
