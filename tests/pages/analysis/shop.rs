//! A shop on two web servers with a database, as its programs record themselves: 1000 requests from
//! 10:00:00 on, one every 250 ms.

use std::path::Path;

use ctf::write::Value::{Text, Unsigned};

use super::recording::{
    MICROSECOND as US, MILLISECOND as MS, Place, Recording, SECOND, TEN_O_CLOCK,
};

const REQUESTS: u64 = 1000;
const INTERVAL: u64 = 250 * MS;
const PATHS: [&str; 4] = ["/item", "/cart", "/search", "/pay"];
const PROCESS: i32 = 810;
/// A thread of the second web server that holds a lock for long.
const REINDEX: Place = Place {
    cpu: 2,
    process: PROCESS,
    thread: 850,
};

/// The program of the shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Build {
    Old,
    New,
}

/// Records the three hosts in directories with their names.
pub(super) fn record(directory: &Path) {
    let mut hosts = ["web1", "web2"].map(|host| Recording::new(host, &[("procname", "shop")]));
    let mut database = Recording::new("db1", &[("procname", "postgres")]);
    for number in 0..REQUESTS {
        let host = &mut hosts[number as usize % 2];
        request(host, Some(&mut database), number, Build::Old);
    }
    let [web1, web2] = &mut hosts;
    // Buffers were full for half a second.
    let full = TEN_O_CLOCK + 210 * SECOND;
    web1.lose(full..full + 500 * MS);
    for number in (0..REQUESTS).filter_map(waits_for_reindex) {
        reindex(web2, number);
    }
    for (host, name) in hosts.into_iter().zip(["web1", "web2"]) {
        host.write(&directory.join(name));
    }
    database.write(&directory.join("db1"));
}

/// Records the same requests of a build, on one host.
pub(super) fn record_build(directory: &Path, build: Build) {
    let mut host = Recording::new("web1", &[("procname", "shop")]);
    for number in 0..400 {
        request(&mut host, None, number, build);
    }
    host.write(directory);
}

/// The begin of a request, and for how long the lock was held, if this request waits for the thread
/// that holds it for long.
fn waits_for_reindex(number: u64) -> Option<(u64, u64)> {
    let which = number.checked_sub(501)?;
    let is_one = which % 22 == 0 && which < 8 * 22;
    is_one.then(|| (begin_of(number), 260 * MS + which / 22 * 20 * MS))
}

fn begin_of(number: u64) -> u64 {
    TEN_O_CLOCK + number * INTERVAL
}

fn reindex(host: &mut Recording, (at, held): (u64, u64)) {
    let lock = ("lock", Text("inventory"));
    let site = ("site", Text("reindex.rs:88"));
    host.emit(at - 5 * MS, REINDEX, "shop:lock_acquired", &[lock, site]);
    host.emit(at + 100 * US + held, REINDEX, "shop:lock_released", &[lock]);
}

fn request(host: &mut Recording, database: Option<&mut Recording>, number: u64, build: Build) {
    let cpu = number as usize / 2 % 2;
    let place = Place {
        cpu,
        process: PROCESS,
        thread: 811 + cpu as i32,
    };
    let begin = begin_of(number);
    let id = ("id", Unsigned(number));
    let path = PATHS[number as usize / 2 % PATHS.len()];
    host.emit(
        begin,
        place,
        "shop:request_begin",
        &[id, ("path", Text(path))],
    );
    let at = locked(host, place, number, begin + 100 * US);
    let at = query(host, database, place, number, at, build);
    let at = render(host, place, number, at, build);
    let status = match number % 143 {
        7 => {
            let reason = ("reason", Text("card expired"));
            host.emit(at, place, "shop:payment_refused", &[id, reason]);
            402
        }
        _ => 200,
    };
    if at - begin > 250 * MS {
        let ms = ("ms", Unsigned((at - begin) / MS));
        host.emit(at + 10 * US, place, "shop:slow_request", &[id, ms]);
    }
    let status = ("status", Unsigned(status));
    host.emit(at + 50 * US, place, "shop:request_end", &[id, status]);
}

/// Waits for a lock, and holds it for a moment. Returns the time after that.
fn locked(host: &mut Recording, place: Place, number: u64, at: u64) -> u64 {
    let slow = waits_for_reindex(number);
    let is_inventory = number.is_multiple_of(3) || slow.is_some();
    let (name, site) = match is_inventory {
        true => ("inventory", "checkout.rs:41"),
        false => ("session", "session.rs:19"),
    };
    let lock = ("lock", Text(name));
    let usual = 20 * US + number * 7 % 13 * 10 * US;
    let acquired = at + slow.map_or(usual, |(_, held)| held + 12 * US);
    host.emit(at, place, "shop:lock_wait_begin", &[lock]);
    host.emit(acquired, place, "shop:lock_wait_end", &[lock]);
    host.emit(
        acquired,
        place,
        "shop:lock_acquired",
        &[lock, ("site", Text(site))],
    );
    host.emit(acquired + 200 * US, place, "shop:lock_released", &[lock]);
    acquired + 250 * US
}

/// Asks the database. Returns the time of its answer.
fn query(
    host: &mut Recording,
    database: Option<&mut Recording>,
    place: Place,
    number: u64,
    at: u64,
    build: Build,
) -> u64 {
    let usual = 3 * MS + number * 53 % 17 * 200 * US;
    let duration = match (number, build) {
        (222, Build::Old) => 450 * MS,
        (777, Build::Old) => 520 * MS,
        (_, Build::Old) => usual,
        (_, Build::New) => usual * 3 / 5,
    };
    let id = ("id", Unsigned(number));
    host.emit(
        at,
        place,
        "shop:query_begin",
        &[id, ("statement", Text("find_item"))],
    );
    host.emit(at + duration, place, "shop:query_end", &[id]);
    if let Some(database) = database {
        let connection = 901 + number as i32 % 4;
        let server = Place {
            cpu: place.cpu,
            process: connection,
            thread: connection,
        };
        let (begin, end) = (at + 300 * US, at + duration - 300 * US);
        database.emit(begin, server, "db:execute_begin", &[id]);
        database.emit(
            end,
            server,
            "db:execute_end",
            &[id, ("rows", Unsigned(number % 9))],
        );
    }
    at + duration
}

fn render(host: &mut Recording, place: Place, number: u64, at: u64, build: Build) -> u64 {
    let usual = 1500 * US + number * 37 % 11 * 100 * US;
    let duration = match build {
        Build::Old => usual,
        Build::New => usual * 5 / 4,
    };
    host.emit(at, place, "shop:render_begin", &[]);
    if build == Build::New {
        host.emit(at + 100 * US, place, "shop:compress_begin", &[]);
        host.emit(at + 400 * US, place, "shop:compress_end", &[]);
    }
    host.emit(at + duration, place, "shop:render_end", &[]);
    at + duration
}
