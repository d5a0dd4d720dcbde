//! What `test-live` exports, as the programs read it for which it is: tables in DuckDB.
#![cfg(test)]

mod canonical;
mod inputs;
mod parquet;
mod parquet_live;
mod tables;
