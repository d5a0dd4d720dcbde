//! Numbers of streams in what a producer said: every relay gives its own, and what was said to one is
//! said to another with that one's.

use std::collections::HashMap;

use relay_proto::{CommandCode, ControlHeader, DataHeader};
use wire::{Field, StreamId};

use crate::tap::Port;

/// What a relay calls the streams that another one called otherwise.
#[derive(Debug, Default)]
pub struct Numbers(HashMap<StreamId, StreamId>);

/// A connection on which numbers are replaced, however its bytes are cut.
#[derive(Debug)]
pub struct Renumbered {
    port: Port,
    /// The beginning of a header, or of what it stands before.
    kept: Vec<u8>,
    /// Bytes that have no number in them.
    left: usize,
    /// The number of the command that began last.
    command: u32,
}

impl Numbers {
    /// A stream has been added: theirs is what the recording calls it.
    pub fn learn(&mut self, theirs: &[u8], own: &[u8]) {
        let read = |mut from: &[u8]| StreamId::read(&mut from).unwrap();
        self.0.insert(read(theirs), read(own));
    }

    fn replace(&self, place: &mut [u8]) {
        let theirs = StreamId::read(&mut &place[..]).unwrap();
        if let Some(own) = self.0.get(&theirs) {
            place.copy_from_slice(&own.0.to_be_bytes());
        }
    }
}

impl Renumbered {
    /// A connection to this port.
    #[must_use]
    pub fn new(port: Port) -> Self {
        Self {
            port,
            kept: Vec::new(),
            left: 0,
            command: 0,
        }
    }

    /// Whether the last command added a stream.
    #[must_use]
    pub fn has_added(&self) -> bool {
        self.command == CommandCode::AddStream.code()
    }

    /// What is to be sent instead of these bytes, as far as that is known.
    pub fn say(&mut self, bytes: &[u8], numbers: &Numbers) -> Vec<u8> {
        self.kept.extend_from_slice(bytes);
        let mut said = Vec::new();
        loop {
            let here = self.left.min(self.kept.len());
            said.extend(self.kept.drain(..here));
            self.left -= here;
            if self.left > 0 {
                return said;
            }
            let begins = match self.port {
                Port::Control => self.command(numbers),
                Port::Data => self.packet(numbers),
            };
            let Some(len) = begins else {
                return said;
            };
            self.left = len;
        }
    }

    /// Replaces the number in a packet's header. Gives how long the packet is with it, if it is there.
    fn packet(&mut self, numbers: &Numbers) -> Option<usize> {
        let header = DataHeader::read(&mut &self.kept[..]).ok()?;
        numbers.replace(&mut self.kept[8..16]);
        Some(DataHeader::SIZE + header.data_size as usize)
    }

    /// Replaces the numbers in a command, if they are all there. Gives how long it is with its header.
    fn command(&mut self, numbers: &Numbers) -> Option<usize> {
        let header = ControlHeader::read(&mut &self.kept[..]).ok()?;
        let len = ControlHeader::SIZE + usize::try_from(header.data_size).unwrap();
        match CommandCode::from_code(header.code) {
            Ok(
                CommandCode::SendMetadata
                | CommandCode::CloseStream
                | CommandCode::DataPending
                | CommandCode::QuiescentControl
                | CommandCode::SendIndex
                | CommandCode::ResetMetadata,
            ) => numbers.replace(self.kept.get_mut(24..32)?),
            Ok(CommandCode::RotateStreams) => {
                let command = self.kept.get_mut(..len)?;
                let count = u32::read(&mut &command[24..]).unwrap() as usize;
                // They stand at the end, behind what depends on the sender.
                let (_, positions) = command.split_at_mut(len - count * 16);
                let streams = positions.chunks_mut(16).map(|position| &mut position[..8]);
                streams.for_each(|stream| numbers.replace(stream));
            }
            _ => {}
        }
        self.command = header.code;
        Some(len)
    }
}
