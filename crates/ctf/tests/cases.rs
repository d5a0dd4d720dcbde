//! The reader's decoding rules as text files: metadata, packets, and the expected events or error.
//! `cases/README.md` describes the files.
#![cfg(test)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ctf::Metadata;
use ctf::decode::{
    DecodeError, Event, FoundEvents, LostEvents, NumberFormat, PacketHead, StreamDecoder, Visitor,
};
use ctf::metadata::Trace;
use ctf::model::{Base, Labels, Scope};

#[test]
fn every_case_file_decodes_to_its_expected_lines() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let entries = fs::read_dir(&directory).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    assert!(!paths.is_empty(), "no case in {}", directory.display());
    let mut report = String::new();
    let mut failed = 0;
    for path in &paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(path).unwrap();
        if let Err(why) = Case::parse(name, &text).and_then(|case| case.run()) {
            failed += 1;
            let _ = writeln!(report, "\n{name}: {why}");
        }
    }
    assert!(failed == 0, "{failed} of {} cases:\n{report}", paths.len());
}

#[test]
fn a_malformed_case_file_is_refused() {
    for (name, text, want) in [
        ("x.txt", "", "its name begins with neither pass- nor fail-"),
        ("pass-x.txt", "text", "it has no sections"),
        ("pass-x.txt", "[event]\n", "unknown section [event]"),
        (
            "pass-x.txt",
            "[stream]\n0",
            "in its hex: line 1: \"0\" is not hex, \"text\" or hex*count",
        ),
        (
            "pass-x.txt",
            "[stream]\n",
            "it must have one section of metadata",
        ),
        (
            "pass-x.txt",
            "[metadata]\n",
            "a case that passes needs [stream] and [decoded]",
        ),
        (
            "fail-x.txt",
            "[metadata]\n",
            "a case that fails needs [error] with one line",
        ),
        (
            "fail-x.txt",
            "[error]\na\n[error]\n",
            "a second section [error]",
        ),
    ] {
        assert_eq!(
            Case::parse(name, text).err().as_deref(),
            Some(want),
            "{text:?}"
        );
    }
}

/// One case file, cut into its sections.
struct Case {
    /// The bytes of the metadata stream.
    metadata: Vec<u8>,
    /// The bytes of each data stream.
    streams: Vec<Vec<u8>>,
    warnings: Vec<String>,
    decoded: Vec<String>,
    error: Option<String>,
}

impl Case {
    fn parse(name: &str, text: &str) -> Result<Self, String> {
        let must_fail = match name.split_once('-') {
            Some(("pass", _)) => false,
            Some(("fail", _)) => true,
            _ => return Err("its name begins with neither pass- nor fail-".to_owned()),
        };
        let (mut metadata, mut streams) = (Vec::new(), Vec::new());
        let (mut warnings, mut decoded, mut errors) = (None, None, None);
        for (head, lines) in sections(text)? {
            let once = |section: &mut Option<Vec<String>>| {
                let lines = lines.iter().filter(|line| !line.trim().is_empty());
                let lines = lines.map(|line| (*line).to_owned()).collect();
                match section.replace(lines) {
                    Some(_) => Err(format!("a second section {head}")),
                    None => Ok(()),
                }
            };
            match head {
                "[metadata]" => metadata.push(metadata_bytes(&lines)),
                "[metadata packets]" => metadata.push(bytes(&lines)?),
                "[stream]" => streams.push(bytes(&lines)?),
                "[warnings]" => once(&mut warnings)?,
                "[decoded]" => once(&mut decoded)?,
                "[error]" => once(&mut errors)?,
                _ => return Err(format!("unknown section {head}")),
            }
        }
        let (Some(metadata), true) = (metadata.pop(), metadata.is_empty()) else {
            return Err("it must have one section of metadata".to_owned());
        };
        if !must_fail && (streams.is_empty() || decoded.is_none()) {
            return Err("a case that passes needs [stream] and [decoded]".to_owned());
        }
        let error = match (must_fail, errors.as_deref()) {
            (true, Some([error])) => Some(error.clone()),
            (false, None) => None,
            (true, _) => return Err("a case that fails needs [error] with one line".to_owned()),
            (false, Some(_)) => return Err("a case that passes has no [error]".to_owned()),
        };
        Ok(Self {
            metadata,
            streams,
            warnings: warnings.unwrap_or_default(),
            decoded: decoded.unwrap_or_default(),
            error,
        })
    }

    fn run(&self) -> Result<(), String> {
        let mut output = Output::default();
        let error = output.read(&self.metadata, &self.streams).err();
        let differences = [
            difference("warnings", &self.warnings, &output.warnings),
            difference("decoded", &self.decoded, &output.decoded),
            difference("error", self.error.as_slice(), error.as_slice()),
        ];
        let differences = differences.concat();
        if differences.is_empty() {
            Ok(())
        } else {
            Err(format!("(- expected, + found)\n{differences}"))
        }
    }
}

type Section<'a> = (&'a str, Vec<&'a str>);

/// The sections of a case file, in order. Brackets in a line with other text begin none.
fn sections(text: &str) -> Result<Vec<Section<'_>>, String> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') && line.ends_with(']') && !line.contains([',', '"']) {
            sections.push((line, Vec::new()));
        } else if let Some((_, lines)) = sections.last_mut() {
            lines.push(line);
        }
    }
    if sections.is_empty() {
        return Err("it has no sections".to_owned());
    }
    Ok(sections)
}

fn metadata_bytes(lines: &[&str]) -> Vec<u8> {
    let mut text = String::new();
    let end = lines.iter().rposition(|line| !line.is_empty());
    for line in lines.iter().take(end.map_or(0, |last| last + 1)) {
        if line.starts_with('{') {
            text.push('\x1e');
        }
        text.push_str(line);
        text.push('\n');
    }
    text.into_bytes()
}

fn bytes(lines: &[&str]) -> Result<Vec<u8>, String> {
    wire::hex::parse(&lines.join("\n")).map_err(|error| format!("in its hex: {error}"))
}

/// The lines that differ, with those that are the same at both ends left out.
fn difference(section: &str, want: &[String], found: &[String]) -> String {
    if want == found {
        return String::new();
    }
    let common = |pairs: &mut dyn Iterator<Item = (&String, &String)>| {
        pairs.take_while(|(want, found)| want == found).count()
    };
    let before = common(&mut want.iter().zip(found));
    let (want, found) = (&want[before..], &found[before..]);
    let after = common(&mut want.iter().rev().zip(found.iter().rev()));
    let mut text = format!("  [{section}] from line {}\n", before + 1);
    for (sign, lines) in [('-', want), ('+', found)] {
        for line in &lines[..lines.len() - after] {
            let _ = writeln!(text, "  {sign} {line}");
        }
    }
    text
}

/// What the reader makes of a trace, as lines.
#[derive(Default)]
struct Output {
    warnings: Vec<String>,
    decoded: Vec<String>,
}

impl Output {
    fn read(&mut self, metadata: &[u8], streams: &[Vec<u8>]) -> Result<(), String> {
        let mut reader = Metadata::new();
        let read = reader.extend(metadata).and_then(|()| reader.finish());
        let warnings = reader.take_warnings();
        self.warnings = warnings.iter().map(ToString::to_string).collect();
        read.map_err(|error| error.to_string())?;
        for (number, stream) in streams.iter().enumerate() {
            if streams.len() > 1 {
                self.decoded.push(format!("stream {number}"));
            }
            self.stream(&mut reader, stream)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn stream(&mut self, metadata: &mut Metadata, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut events = Vec::new();
        let read = self.read_events(metadata.trace(), bytes, &mut events);
        assert_eq!(found_together(metadata.trace(), bytes), events);
        read
    }

    fn read_events(
        &mut self,
        trace: &Trace,
        mut bytes: &[u8],
        events: &mut Vec<String>,
    ) -> Result<(), DecodeError> {
        let mut decoder = StreamDecoder::new();
        while !bytes.is_empty() {
            let head = decoder.begin_packet(trace, bytes)?;
            let size = usize::try_from(head.packet_bytes()).unwrap();
            let (packet, rest) = bytes.split_at(size);
            bytes = rest;
            let losses = decoder.losses();
            match losses.events {
                Some(LostEvents::Count(count)) => {
                    self.decoded.push(format!("lost: {count} events"))
                }
                Some(LostEvents::Some) => self.decoded.push("lost: some events".to_owned()),
                None => {}
            }
            if let Some(count) = losses.packets {
                self.decoded.push(format!("lost: {count} packets"));
            }
            self.decoded.push(packet_line(&head));
            let mut is_first = true;
            while decoder.advance(trace, packet)? {
                let event = decoder.event(trace, packet).unwrap();
                if is_first {
                    self.decoded.last_mut().unwrap().push_str(&context(&event));
                    is_first = false;
                }
                events.push(event_line(&event));
                self.decoded.push(event_line(&event));
            }
        }
        Ok(())
    }
}

/// The events of a stream, or those before its error, found several at a time.
fn found_together(trace: &Trace, mut bytes: &[u8]) -> Vec<String> {
    let (mut decoder, mut found) = (StreamDecoder::new(), FoundEvents::default());
    let mut lines = Vec::new();
    while !bytes.is_empty() {
        let Ok(head) = decoder.begin_packet(trace, bytes) else {
            break;
        };
        let (packet, rest) = bytes.split_at(usize::try_from(head.packet_bytes()).unwrap());
        bytes = rest;
        loop {
            let more = decoder.find_events(trace, packet, 3, &mut found);
            let events = (0..found.len()).map(|place| found.event(trace, packet, place).unwrap());
            lines.extend(events.map(|event| event_line(&event)));
            match more {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return lines,
            }
        }
    }
    lines
}

fn packet_line(head: &PacketHead) -> String {
    let mut line = format!("packet: {} of {} bits", head.content_bits, head.packet_bits);
    let _ = write!(line, ", class {}", head.stream_class);
    for (name, value) in [
        ("stream", head.stream_id),
        ("begin", head.begin),
        ("end", head.end),
        ("sequence", head.sequence.map(|counter| counter.value)),
        ("discarded", head.discarded.map(|counter| counter.value)),
    ] {
        if let Some(value) = value {
            let _ = write!(line, ", {name} {value}");
        }
    }
    if let Some(uuid) = head.foreign_uuid {
        let _ = write!(line, ", of trace {uuid}");
    }
    line
}

/// The packet context, which is shown by the events of the packet.
fn context(event: &Event<'_>) -> String {
    let mut fields = Fields::default();
    event.visit_packet_context(&mut fields).unwrap();
    fields.text
}

fn event_line(event: &Event<'_>) -> String {
    let mut line = event.class().name().unwrap_or("(no name)").to_owned();
    match event.exact_time() {
        Some(time) => _ = write!(line, ": {time} ns"),
        None => line.push_str(": no time"),
    }
    let mut fields = Fields::default();
    event.visit_fields(&mut fields).unwrap();
    line + &fields.text
}

/// Shows fields as `cases/README.md` says.
#[derive(Default)]
struct Fields {
    text: String,
}

impl Fields {
    /// A comma, unless a structure or an array has just begun.
    fn separate(&mut self) {
        if !self.text.ends_with(['{', '[']) {
            self.text.push_str(", ");
        }
    }

    fn labels<'a>(&mut self, labels: impl Iterator<Item = &'a str>) {
        let labels = labels.collect::<Vec<_>>().join(", ");
        let _ = write!(self.text, " ({labels})");
    }
}

impl Visitor for Fields {
    fn begin_scope(&mut self, scope: Scope) {
        self.text.push_str(match scope {
            Scope::CommonContext => "; common ",
            Scope::SpecificContext => "; specific ",
            Scope::Payload => "; payload ",
            Scope::PacketHeader | Scope::PacketContext | Scope::EventHeader => "; ",
        });
    }

    fn begin_structure(&mut self) {
        self.text.push('{');
    }

    fn member(&mut self, name: &str) {
        self.separate();
        let _ = write!(self.text, "{name}=");
    }

    fn end_structure(&mut self) {
        self.text.push('}');
    }

    fn begin_array(&mut self, _: u64) {
        self.text.push('[');
    }

    fn element(&mut self, _: u64) {
        self.separate();
    }

    fn end_array(&mut self) {
        self.text.push(']');
    }

    fn begin_variant(&mut self, option: Option<&str>) {
        let _ = write!(self.text, "{}: ", option.unwrap_or("(unnamed)"));
    }

    fn begin_optional(&mut self, present: bool) {
        self.text.push_str(if present { "some " } else { "none" });
    }

    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        let _ = match format.base {
            Base::Binary => write!(self.text, "{value:#b}"),
            Base::Octal => write!(self.text, "{value:#o}"),
            Base::Decimal => write!(self.text, "{value}"),
            Base::Hexadecimal => write!(self.text, "{value:#x}"),
        };
        if let Some(labels) = format.labels {
            self.labels(labels.of(value.into()));
        }
    }

    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        let _ = write!(self.text, "{value}");
        if let Some(labels) = format.labels {
            self.labels(labels.of(value.into()));
        }
    }

    fn float(&mut self, value: f64, _: u8) {
        let _ = write!(self.text, "{value:?}");
    }

    fn boolean(&mut self, value: bool) {
        let _ = write!(self.text, "{value}");
    }

    fn bit_array(&mut self, value: u64, bits: u8, flags: Option<&Labels>) {
        let _ = write!(self.text, "{value:#x}:{bits}");
        if let Some(flags) = flags {
            self.labels(flags.of_bits(value));
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        let _ = write!(self.text, "{:?}", String::from_utf8_lossy(bytes));
    }

    fn blob(&mut self, bytes: &[u8], media_type: &str) {
        self.text.push('<');
        for byte in bytes {
            let _ = write!(self.text, "{byte:02x}");
        }
        let _ = write!(self.text, " {media_type}>");
    }
}
