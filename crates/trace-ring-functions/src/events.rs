//! The events, with the names and fields of LTTng-UST.

use trace_ring_core::{CallSite, Severity, value_list, write_values};

use crate::object::Object;

/// Functions are recorded unless `TRACE_RING_FILTER` says otherwise: to load this library is to ask
/// for them.
pub(crate) const DEFAULT_FILTER: &str = "info,lttng_ust_cyg_profile=debug";

const STATEDUMP: &str = "lttng_ust_statedump";
const LIBRARIES: &str = "lttng_ust_lib";
const OBJECT_FIELDS: &[&str] = &["baddr", "memsz", "path", "has_build_id", "has_debug_link"];
const BUILD_ID_FIELDS: &[&str] = &["baddr", "build_id"];

pub(crate) static FUNC_ENTRY: CallSite = function_site("func_entry");
pub(crate) static FUNC_EXIT: CallSite = function_site("func_exit");

const fn function_site(name: &'static str) -> CallSite {
    let fields = &["addr", "call_site"];
    CallSite::new(
        Severity::Debug,
        "lttng_ust_cyg_profile",
        name,
        "",
        0,
        fields,
    )
}

const fn object_site(
    target: &'static str,
    name: &'static str,
    fields: &'static [&'static str],
) -> CallSite {
    CallSite::new(Severity::Info, target, name, "", 0, fields)
}

/// Writes the entry or exit of a function.
#[inline(always)]
pub(crate) fn write_function(site: &'static CallSite, function: u64, call_site: u64) {
    write_values(site, value_list!(function, call_site));
}

/// Writes the complete list of what is loaded. Readers forget what they knew before. The filter is
/// not asked: addresses mean nothing without the list.
pub(crate) fn write_list<'a>(objects: impl Iterator<Item = &'a Object>) {
    static START: CallSite = object_site(STATEDUMP, "start", &[]);
    static BIN_INFO: CallSite = object_site(
        STATEDUMP,
        "bin_info",
        &[
            "baddr",
            "memsz",
            "path",
            "is_pic",
            "has_build_id",
            "has_debug_link",
        ],
    );
    static BUILD_ID: CallSite = object_site(STATEDUMP, "build_id", BUILD_ID_FIELDS);
    static END: CallSite = object_site(STATEDUMP, "end", &[]);

    write_values(&START, ());
    for object in objects {
        let (is_pic, has_build_id) = (u8::from(object.is_pic), u8::from(object.has_build_id()));
        let (address, size, path) = (object.address, object.size, object.path.as_str());
        write_values(
            &BIN_INFO,
            value_list!(address, size, path, is_pic, has_build_id, 0_u8),
        );
        write_build_id(&BUILD_ID, object);
    }
    write_values(&END, ());
}

/// Writes that an object was loaded after the list was written.
pub(crate) fn write_load(object: &Object) {
    static LOAD: CallSite = object_site(LIBRARIES, "load", OBJECT_FIELDS);
    static BUILD_ID: CallSite = object_site(LIBRARIES, "build_id", BUILD_ID_FIELDS);

    let (address, size, path) = (object.address, object.size, object.path.as_str());
    let has_build_id = u8::from(object.has_build_id());
    write_values(&LOAD, value_list!(address, size, path, has_build_id, 0_u8));
    write_build_id(&BUILD_ID, object);
}

/// Writes that an object of the list is not loaded any more.
pub(crate) fn write_unload(object: &Object) {
    static UNLOAD: CallSite = object_site(LIBRARIES, "unload", &["baddr"]);

    write_values(&UNLOAD, value_list!(object.address));
}

fn write_build_id(site: &'static CallSite, object: &Object) {
    if object.has_build_id() {
        let build_id = object.build_id.as_slice();
        write_values(site, value_list!(object.address, *build_id));
    }
}
