//! Options that take a list of words.

use std::str::FromStr;

use crate::sink::text::{HeaderFields, Names};

/// The places where names are shown. (`--names`)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamesList(pub Names);

impl FromStr for NamesList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of = |all| Names {
            payload: all,
            context: all,
            scope: all,
            header: all,
        };
        // A list says all that is shown: what is not in it is not.
        let mut names = of(false);
        for word in text.split(',') {
            match word.trim() {
                "payload" | "arg" | "args" => names.payload = true,
                "context" | "ctx" => names.context = true,
                "scope" => names.scope = true,
                "header" => names.header = true,
                "all" => names = of(true),
                "none" => names = of(false),
                other => {
                    return Err(format!(
                        "unknown part {other:?}: expected payload, context, scope, header, all or none"
                    ));
                }
            }
        }
        Ok(Self(names))
    }
}

/// The parts that stand before the name of an event. (`--fields`)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldsList(pub HeaderFields);

impl FromStr for FieldsList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of = |all| HeaderFields {
            trace: all,
            hostname: all,
            domain: all,
            procname: all,
            vpid: all,
            log_level: all,
            emf_uri: all,
        };
        let mut fields = of(false);
        for word in text.split(',') {
            match word.trim() {
                "trace" => fields.trace = true,
                "trace:hostname" => fields.hostname = true,
                "trace:domain" => fields.domain = true,
                "trace:procname" => fields.procname = true,
                "trace:vpid" => fields.vpid = true,
                "loglevel" => fields.log_level = true,
                "emf" => fields.emf_uri = true,
                // Known, and never present in a trace.
                "callsite" => {}
                "all" => fields = of(true),
                other => {
                    return Err(format!(
                        "unknown part {other:?}: expected trace, trace:hostname, trace:domain, trace:procname, trace:vpid, loglevel, emf, callsite or all"
                    ));
                }
            }
        }
        Ok(Self(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_names_replaces_the_default_names() {
        let NamesList(names) = "payload,scope".parse().unwrap();
        assert!(names.payload && names.scope && !names.context && !names.header);
        assert!("payload,nothing".parse::<NamesList>().is_err());
        let FieldsList(fields) = "loglevel".parse().unwrap();
        assert!(fields.log_level && !fields.hostname);
    }
}
