//! Hostile input: inputs that once broke a reader, and invariants for any input.
#![cfg(test)]

mod good;
mod index;
mod must;
mod mutated;
mod once;
