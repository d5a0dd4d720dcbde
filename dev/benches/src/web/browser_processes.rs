//! The processes of a browser: their memory and processor time.

use std::fs;
use std::time::Duration;

/// Milliseconds in a tick of the kernel's figures.
const TICK_MS: u64 = 10;

/// A process and its parent, and the processor time of the process so far.
struct Listed {
    id: u32,
    parent: u32,
    cpu: Duration,
}

fn list() -> Vec<Listed> {
    let ids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    let listed = ids.filter_map(|id| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // After the name, which may have anything in it: state, parent, and as 12th and 13th the
        // times.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Listed {
            id,
            parent: u32::try_from(number(1)?).ok()?,
            cpu: Duration::from_millis((number(11)? + number(12)?) * TICK_MS),
        })
    });
    listed.collect()
}

/// The processes that descend from this one.
fn descendants(root: u32) -> Vec<Listed> {
    let mut all = list();
    let mut known = vec![root];
    let mut found = Vec::new();
    // From the beginning each time, because a child may be listed before its parent.
    while let Some(at) = all.iter().position(|one| known.contains(&one.parent)) {
        let one = all.swap_remove(at);
        known.push(one.id);
        found.push(one);
    }
    found
}

/// Processor time of a browser so far, given the id of its driver.
pub(crate) fn cpu(driver: u32) -> Duration {
    descendants(driver).iter().map(|one| one.cpu).sum()
}

/// Memory of the page's process, resident and proportional, in MB.
pub(crate) fn page_memory(driver: u32) -> (u64, u64) {
    let of_page = |one: &Listed| {
        let command = fs::read(format!("/proc/{}/cmdline", one.id)).ok()?;
        let command = String::from_utf8_lossy(&command).into_owned();
        // Chromium's process for a page; the others serve all pages.
        if !command.contains("--type=renderer") {
            return None;
        }
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", one.id)).ok()?;
        let member = |name: &str| {
            let line = rollup.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        Some((member("Rss:")? / 1024, member("Pss:")? / 1024))
    };
    let pages = descendants(driver);
    // Chromium may keep a spare process for the next page, which is smaller.
    pages.iter().filter_map(of_page).max().unwrap_or((0, 0))
}
