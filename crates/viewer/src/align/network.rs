//! The clocks of several hosts, put into relation by the packets that they have sent to each other,
//! as kernel traces have them.
//!
//! All hosts are aligned with the host that has the most packets in common with others, directly or
//! by way of hosts between them. Where no packets lead, nothing is guessed.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use clock_offset::{ClockGraph, PacketTrack, PacketTrackError};
use ctf::directory::TraceDirectory;

use super::clock::{Node, TraceClock};
use super::matching::PacketMatches;
use super::packets::{PacketEvents, has_packets};
use crate::terminal::printable;

/// The most hosts whose packets are read: to find ways between them takes a time that grows faster
/// than their number.
const MAX_HOSTS: usize = 64;

/// What the packets of hosts say of their clocks.
#[derive(Debug)]
pub(super) struct PacketRelations {
    graph: ClockGraph<Node, PacketTrack>,
    /// The hosts whose packets were read.
    nodes: Vec<Node>,
    unrelated: Vec<Unrelated>,
    /// The number of packets that were left out, because hosts have seen them more than once.
    ambiguous: u64,
    /// Whether there were too many packets.
    is_partial: bool,
    /// Whether there were too many hosts.
    has_more_hosts: bool,
}

/// Two hosts that have packets in common, which do not relate their clocks.
#[derive(Debug)]
struct Unrelated {
    hosts: [Node; 2],
    error: PacketTrackError,
}

impl PacketRelations {
    /// Reads the packets of kernel traces.
    pub(super) fn of_traces(traces: &[TraceDirectory]) -> Self {
        let mut events = PacketEvents::default();
        let mut nodes: Vec<Node> = Vec::new();
        let mut has_more_hosts = false;
        for trace in traces {
            let declared = trace.metadata.trace();
            let Some(clock) = TraceClock::of(declared).filter(|_| has_packets(declared)) else {
                continue;
            };
            let known = nodes.iter().position(|node| *node == clock.node);
            let number = known.unwrap_or(nodes.len());
            if known.is_none() && number < MAX_HOSTS {
                nodes.push(clock.node);
            }
            match u16::try_from(number) {
                Ok(host) if number < nodes.len() => events.read(trace, host),
                _ => has_more_hosts = true,
            }
        }
        let is_partial = events.is_partial();
        let matches = PacketMatches::of_events(&events.into_sorted());
        let mut relations = Self {
            graph: ClockGraph::default(),
            nodes,
            unrelated: Vec::new(),
            ambiguous: matches.ambiguous,
            is_partial,
            has_more_hosts,
        };
        relations.relate(&matches);
        relations
    }

    /// Relates all pairs of hosts that have packets in common.
    fn relate(&mut self, matches: &PacketMatches) {
        let ordered = |&(from, to): &(u16, u16)| (from.min(to), from.max(to));
        let pairs: BTreeSet<_> = matches.pairs.keys().map(ordered).collect();
        for (one, other) in pairs {
            let packets = |pair| matches.pairs.get(&pair).map_or(&[][..], Vec::as_slice);
            let (there, back) = (packets((one, other)), packets((other, one)));
            let hosts = [one, other].map(|host| self.nodes.get(usize::from(host)));
            let [Some(one), Some(other)] = hosts else {
                continue;
            };
            let tracks = PacketTrack::new(there, back)
                .and_then(|track| Ok([track, PacketTrack::new(back, there)?]));
            match tracks {
                Ok(tracks) => self.graph.insert(one, other, tracks),
                Err(error) => self.unrelated.push(Unrelated {
                    hosts: [one.clone(), other.clone()],
                    error,
                }),
            }
        }
    }

    /// Returns the host with the most packets, whose times stay, and by how much its time of day is
    /// ahead of its clock. None if no hosts are related.
    pub(super) fn reference(&self, traces: &[TraceDirectory]) -> Option<(Node, i64)> {
        // Of hosts with the same number, the one whose name comes first.
        let order = |node: &&Node| (self.packets_of(node), Reverse((*node).clone()));
        let node = self.nodes.iter().max_by_key(order)?;
        let clocks = traces.iter().map(|trace| trace.metadata.trace());
        let mut clocks = clocks.filter_map(TraceClock::of);
        let clock = clocks.find(|clock| clock.node == *node)?;
        (self.packets_of(node) > 0).then_some((clock.node, clock.offset))
    }

    pub(super) fn graph(&self) -> &ClockGraph<Node, PacketTrack> {
        &self.graph
    }

    /// Returns the number of packets that relate a host with others.
    pub(super) fn packets_of(&self, node: &Node) -> usize {
        let tracks = self.graph.tracks_of(node);
        tracks.map(|(_, track)| track.packets()).sum()
    }

    /// Returns the time of a clock when the last of these packets was sent or received.
    pub(super) fn last_packet(&self, node: &Node) -> Option<i64> {
        let tracks = self.graph.tracks_of(node);
        tracks.map(|(_, track)| track.last()).max()
    }

    /// Says why a host is unaligned.
    pub(super) fn reason(&self, node: Option<&Node>) -> String {
        let Some(node) = node else {
            return "its clock is not identified".to_owned();
        };
        let pairs = self.unrelated.iter();
        let pairs: Vec<_> = pairs.filter_map(|pair| pair.reason(node)).collect();
        if !pairs.is_empty() {
            return pairs.join("; ");
        }
        let what = match self.packets_of(node) {
            0 => "no TCP packet in its traces was matched with one of another host",
            _ => "no packets lead to the host whose times stay",
        };
        what.to_owned()
    }

    /// Returns what there is to say of all hosts together.
    pub(super) fn remarks(&self, reference: Option<&(Node, i64)>) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some((reference, _)) = reference {
            remarks.push(format!("all times are those of {}", shown(reference)));
        }
        if self.ambiguous > 0 {
            remarks.push(format!(
                "packets that were sent or received more than once, and are not used: {}",
                self.ambiguous
            ));
        }
        if self.is_partial {
            remarks.push("there are too many packets: only some of them are used".to_owned());
        }
        if self.has_more_hosts {
            remarks.push(format!("only the packets of {MAX_HOSTS} hosts are used"));
        }
        remarks
    }
}

impl Unrelated {
    /// Says why one of the hosts is not related to the other. None if it is another host.
    fn reason(&self, node: &Node) -> Option<String> {
        let other = match &self.hosts {
            [one, other] if one == node => other,
            [other, one] if one == node => other,
            _ => return None,
        };
        let other = shown(other);
        Some(match self.error {
            PacketTrackError::OneDirection => {
                format!("there are packets in one direction only, from or to {other}")
            }
            PacketTrackError::NoConstantDrift => format!(
                "no constant drift agrees with all packets from and to {other}; a clock was stopped or corrected meanwhile"
            ),
        })
    }
}

fn shown(node: &Node) -> String {
    match node {
        Node::Host { name, .. } => printable(name).collect(),
        Node::Relay { .. } => "a relay".to_owned(),
    }
}
