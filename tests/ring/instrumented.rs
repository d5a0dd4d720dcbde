//! Programs compiled with `-finstrument-functions`, and what their traces say of their functions:
//! found by the tools of binutils only.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;

use crate::system::command;

/// An event of a viewer: its name, its thread, and its fields as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) thread: u64,
    pub(crate) fields: BTreeMap<String, String>,
}

impl Event {
    /// Reads a line of babeltrace2.
    pub(crate) fn from_line(line: &str) -> Self {
        let (head, fields) = line.rsplit_once(" }, {").unwrap();
        let (_, thread) = head.rsplit_once("vtid = ").unwrap();
        let (name, _) = head.split_once(": {").unwrap();
        let fields = fields.trim_end_matches('}').trim();
        let fields = fields
            .split(", ")
            .filter_map(|field| field.split_once(" = "));
        Self {
            name: name.rsplit_once(' ').unwrap().1.to_owned(),
            thread: thread.parse().unwrap(),
            fields: fields
                .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()))
                .collect(),
        }
    }

    /// Reads a line of `test-live --sink json`.
    pub(crate) fn from_json(line: &str) -> Self {
        let event: Value = serde_json::from_str(line).unwrap();
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let fields = event["fields"].as_object();
        Self {
            name: event["event"].as_str().unwrap().to_owned(),
            thread: event["context"]["vtid"].as_u64().unwrap(),
            fields: fields
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.clone(), text(value)))
                .collect(),
        }
    }

    pub(crate) fn number(&self, field: &str) -> u64 {
        self.fields[field].parse().unwrap()
    }
}

/// A loaded object as the trace describes it.
#[derive(Debug, Clone)]
struct Object {
    path: String,
    size: u64,
    is_pic: bool,
}

/// What a trace says of the functions of a process.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Whole calls by the name of the function, which binutils know.
    pub(crate) counts: BTreeMap<String, u64>,
    /// Build id of each path, as the trace has it.
    pub(crate) build_ids: BTreeMap<String, String>,
    /// Base addresses of what was loaded by the time, in order.
    pub(crate) loads: Vec<(String, u64)>,
    pub(crate) unloads: Vec<u64>,
}

impl Calls {
    /// Checks that each entry has its exit, in order, in each thread, and that each function lies
    /// in an object that is loaded by then.
    pub(crate) fn of(events: &[Event]) -> Self {
        let mut calls = Self::default();
        let mut loaded = BTreeMap::<u64, Object>::new();
        let mut stacks = HashMap::<u64, Vec<(u64, u64)>>::new();
        let mut ended = HashMap::<(String, u64), u64>::new();
        for event in events {
            match event.name.rsplit_once(':').unwrap().1 {
                "start" => loaded.clear(),
                "bin_info" | "load" => calls.add_object(event, &mut loaded),
                "build_id" => {
                    let path = loaded[&event.number("baddr")].path.clone();
                    let id = event.fields["build_id"].clone();
                    calls.build_ids.insert(path, id);
                }
                "unload" => {
                    let base = event.number("baddr");
                    loaded.remove(&base).unwrap();
                    calls.unloads.push(base);
                }
                "func_entry" => {
                    let call = (event.number("addr"), event.number("call_site"));
                    stacks.entry(event.thread).or_default().push(call);
                }
                "func_exit" => {
                    let call = (event.number("addr"), event.number("call_site"));
                    let entry = stacks.entry(event.thread).or_default().pop();
                    assert_eq!(entry, Some(call), "{event:?}");
                    *ended.entry(place_of(call.0, &loaded)).or_default() += 1;
                }
                _ => {}
            }
        }
        assert!(stacks.values().all(Vec::is_empty), "{stacks:?}");
        calls.name_functions(ended);
        calls
    }

    fn add_object(&mut self, event: &Event, loaded: &mut BTreeMap<u64, Object>) {
        let (base, path) = (event.number("baddr"), event.fields["path"].clone());
        let object = Object {
            path: path.clone(),
            size: event.number("memsz"),
            is_pic: event
                .fields
                .get("is_pic")
                .is_none_or(|is_pic| is_pic == "1"),
        };
        assert!(loaded.insert(base, object).is_none(), "{event:?}");
        self.loads.push((path, base));
    }

    fn name_functions(&mut self, ended: HashMap<(String, u64), u64>) {
        let paths: BTreeSet<_> = ended.keys().map(|(path, _)| path.clone()).collect();
        for path in paths {
            let of_path = ended.iter().filter(|((other, _), _)| *other == path);
            let (offsets, counts): (Vec<_>, Vec<_>) = of_path
                .map(|((_, offset), count)| (*offset, *count))
                .unzip();
            for (name, count) in function_names(&path, &offsets).into_iter().zip(counts) {
                *self.counts.entry(name).or_default() += count;
            }
        }
    }

    /// Checks the build ids of all files against those that `readelf` reads.
    pub(crate) fn assert_build_ids(&self) {
        assert!(self.build_ids.len() >= 4, "{self:?}");
        for (path, id) in self
            .build_ids
            .iter()
            .filter(|(path, _)| path.starts_with('/'))
        {
            let mut readelf = Command::new("readelf");
            let notes = run(readelf.args(["--notes", "--wide"]).arg(path)).join("\n");
            assert!(
                notes.contains(&format!("Build ID: {id}")),
                "{path}: {id}: {notes}"
            );
        }
    }
}

/// Returns the path of the object around an address, and the address in its file.
fn place_of(address: u64, loaded: &BTreeMap<u64, Object>) -> (String, u64) {
    let (base, object) = loaded.range(..=address).next_back().unwrap();
    assert!(address - base < object.size, "{address:#x}: {loaded:?}");
    let base = if object.is_pic { *base } else { 0 };
    (object.path.clone(), address - base)
}

/// Returns the names of functions at addresses of a file, as `addr2line` knows them. `nm` must know
/// the same.
fn function_names(path: &str, offsets: &[u64]) -> Vec<String> {
    let mut addr2line = Command::new("addr2line");
    addr2line.args(["--functions", "--exe", path]);
    addr2line.args(offsets.iter().map(|offset| format!("{offset:#x}")));
    let lines = run(&mut addr2line);
    let names: Vec<_> = lines.iter().step_by(2).cloned().collect();
    let mut symbols = run(Command::new("nm").arg(path));
    // Libraries of the system have no other symbols.
    symbols.extend(run(Command::new("nm").args([
        "--dynamic",
        "--without-symbol-versions",
        path,
    ])));
    for (name, offset) in names.iter().zip(offsets) {
        let symbol = format!("{offset:016x} ");
        let symbol = symbols
            .iter()
            .find(|line| line.starts_with(&symbol) && line.ends_with(&format!(" {name}")));
        assert!(symbol.is_some(), "{path}: {name} at {offset:#x}");
    }
    assert_eq!(names.len(), offsets.len());
    names
}

/// How a program gets the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Preloaded,
    Linked,
}

/// Returns the command of the instrumented program, compiled without a warning.
pub(crate) fn program(lab: &Lab, source: &str, options: &[&str], way: Use) -> Command {
    let library = binaries::ring_functions();
    let directory = library.parent().unwrap();
    let (name, _) = source.split_once('.').unwrap();
    let program = lab.directory("functions").join(name);
    let mut compile = Command::new(if source.ends_with(".cpp") {
        "c++"
    } else {
        "cc"
    });
    compile
        .args([
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-finstrument-functions",
            "-pthread",
        ])
        .args(options)
        .arg(source_path(source))
        .arg("-o")
        .arg(&program);
    if way == Use::Linked {
        compile
            .arg("-L")
            .arg(directory)
            .arg("-ltrace_ring_functions");
    }
    run(&mut compile);
    let mut command = command(lab, &program);
    command.env("TRACE_RING_SIZE", "16M");
    match way {
        Use::Preloaded => command.env("LD_PRELOAD", library),
        Use::Linked => command.env("LD_LIBRARY_PATH", directory),
    };
    command
}

/// Compiles a plugin whose own function has this name, and returns its path.
pub(crate) fn plugin(lab: &Lab, function: &str) -> PathBuf {
    let path = lab.directory("functions").join(format!("{function}.so"));
    let mut compile = Command::new("cc");
    compile
        .args(["-g", "-shared", "-fPIC", "-finstrument-functions"])
        .arg(format!("-DPLUGIN={function}"))
        .arg(source_path("plugin.c"))
        .arg("-o")
        .arg(&path);
    run(&mut compile);
    path
}

fn source_path(source: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("ring/functions")
        .join(source)
}

/// Runs a command to its end, and returns its lines.
pub(crate) fn run(command: &mut Command) -> Vec<String> {
    Process::start(command).wait().expect_success()
}
