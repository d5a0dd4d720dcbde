//! Hostile input: what once broke a reader, and what must hold of anything.
#![cfg(test)]

mod good;
mod index;
mod must;
mod mutated;
mod once;
