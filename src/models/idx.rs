//! Labelled digits in IDX files, as MNIST has them: a magic number, extents of four bytes each, and a byte a pixel or label.

use super::cnn::{CLASSES, SIDE};
use super::error::Error;
use crate::core::packed;
use std::path::{Path, PathBuf};

/// The magic numbers: bytes in three dimensions, and in one.
const IMAGES: u32 = 0x803;
const LABELS: u32 = 0x801;

/// Digits of each class that are kept out of training: the last ones, in the order of the files.
pub const KEPT_OUT: usize = 100;

/// Pixels of a digit.
pub const PIXELS: usize = SIDE * SIDE;

/// Digits with what they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelledDigits {
    /// 784 bytes a digit, row by row: 0 is the background.
    pub pixels: Vec<u8>,
    /// What each is.
    pub labels: Vec<u8>,
}

impl LabelledDigits {
    /// Reads every pair of files in a folder whose names end in `images-idx3-ubyte` and `labels-idx1-ubyte`; one may be packed, with
    /// `.xz` behind its name.
    ///
    /// # Errors
    /// What is missing or malformed: the file, the offset, what was expected and what was found.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let expected = "digits as IDX files, `…images-idx3-ubyte` and `…labels-idx1-ubyte`: `bash ci/get-mnist.sh FOLDER` \
                        writes them";
        let listed = std::fs::read_dir(folder).map_err(|why| Error::in_file(folder, "", expected, why.to_string()))?;
        let mut names: Vec<String> =
            listed.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        let mut digits = LabelledDigits::default();
        for name in &names {
            let plain = name.strip_suffix(".xz").unwrap_or(name);
            if let Some(set) = plain.strip_suffix("images-idx3-ubyte") {
                let labels = format!("{set}labels-idx1-ubyte");
                let packed = format!("{labels}.xz");
                let labels = if names.contains(&packed) { packed } else { labels };
                digits.read(&folder.join(name), &folder.join(labels))?;
            }
        }
        if digits.labels.is_empty() {
            let packed = names.iter().find(|name| name.ends_with("ubyte.gz"));
            let found = packed.map_or_else(
                || format!("{} other files", names.len()),
                |name| format!("`{name}`: unpack it with gunzip"),
            );
            return Err(Error::in_file(folder, "", expected, found));
        }
        Ok(digits)
    }

    fn read(&mut self, images: &Path, labels: &Path) -> Result<(), Error> {
        let of_images = Idx::open(images, IMAGES, "images: bytes in three dimensions")?;
        let of_labels = Idx::open(labels, LABELS, "labels: bytes in one dimension")?;
        for (axis, name) in [(1, "rows"), (2, "columns")] {
            if of_images.extents[axis] != SIDE {
                let expected = format!("{SIDE} {name} a digit");
                return of_images.wrong(4 + 4 * axis, expected, of_images.extents[axis]);
            }
        }
        let count = of_images.extents[0];
        if of_labels.extents[0] != count {
            let expected = format!("{count} labels, one for each image of {}", images.display());
            return of_labels.wrong(4, expected, of_labels.extents[0]);
        }
        let (pixels, classes) = (of_images.data()?, of_labels.data()?);
        if let Some(at) = classes.iter().position(|&label| usize::from(label) >= CLASSES) {
            return of_labels.wrong(of_labels.header() + at, format!("a label below {CLASSES}"), classes[at]);
        }
        self.pixels.extend(pixels);
        self.labels.extend(classes);
        Ok(())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Whether each is one of those that are kept out of training.
    pub fn kept_out(&self) -> Vec<bool> {
        let mut left = [KEPT_OUT; CLASSES];
        let is_kept = |&label: &u8| {
            let left = &mut left[usize::from(label)];
            let is_kept = *left > 0;
            *left = left.saturating_sub(1);
            is_kept
        };
        let mut kept: Vec<bool> = self.labels.iter().rev().map(is_kept).collect();
        kept.reverse();
        kept
    }

    /// So many of them at the most, spread over all.
    pub fn spread(&self, most: usize) -> LabelledDigits {
        let (count, most) = (self.count(), most.clamp(1, self.count().max(1)));
        let chosen: Vec<usize> = (0..most).map(|at| at * count / most).collect();
        LabelledDigits {
            pixels: chosen.iter().flat_map(|&at| &self.pixels[at * PIXELS..(at + 1) * PIXELS]).copied().collect(),
            labels: chosen.iter().map(|&at| self.labels[at]).collect(),
        }
    }

    /// The pixels of some digits, from 0 for the background to 1.
    pub fn values(&self, digits: std::ops::Range<usize>) -> Vec<f64> {
        self.pixels[digits.start * PIXELS..digits.end * PIXELS].iter().map(|&pixel| f64::from(pixel) / 255.0).collect()
    }
}

/// An IDX file of bytes.
struct Idx {
    path: PathBuf,
    bytes: Vec<u8>,
    extents: Vec<usize>,
}

impl Idx {
    /// Reads a file, and of it the magic number and the extents.
    fn open(path: &Path, magic: u32, what: &str) -> Result<Idx, Error> {
        let unreadable = |why: std::io::Error| Error::in_file(path, "", "a file that can be read", why.to_string());
        let bytes = std::fs::read(path).and_then(packed::content).map_err(unreadable)?;
        let mut idx = Idx { path: path.into(), bytes, extents: Vec::new() };
        let numbers: Vec<u32> = idx.bytes.as_chunks().0.iter().map(|four| u32::from_be_bytes(*four)).collect();
        if let Some(&found) = numbers.first()
            && found != magic
        {
            return idx.wrong(0, format!("the magic number {magic:#010x} ({what})"), format!("{found:#010x}"));
        }
        let dimensions = (magic & 0xFF) as usize;
        let header = 4 + 4 * dimensions;
        if idx.bytes.len() < header {
            return idx.wrong(0, format!("a header of {header} bytes ({what})"), format!("{} bytes", idx.bytes.len()));
        }
        idx.extents = numbers[1..=dimensions].iter().map(|&extent| extent as usize).collect();
        if idx.extents[0] == 0 {
            return idx.wrong(4, "one at the least", 0);
        }
        Ok(idx)
    }

    fn header(&self) -> usize {
        4 + 4 * self.extents.len()
    }

    /// What stands behind the header: as many bytes as the extents say.
    fn data(&self) -> Result<&[u8], Error> {
        let (expected, found) = (self.extents.iter().product::<usize>(), self.bytes.len() - self.header());
        if found != expected {
            let said = format!("{expected} bytes for {} of them", self.extents[0]);
            return self.wrong(self.header(), said, format!("{found} bytes"));
        }
        Ok(&self.bytes[self.header()..])
    }

    fn wrong<T>(&self, offset: usize, expected: impl Into<String>, found: impl ToString) -> Result<T, Error> {
        Err(Error::in_file(&self.path, &format!("offset {offset}"), expected, found.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn fixture() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/cnn/digits")
    }

    #[test]
    fn ten_digits_of_each_class_are_read() {
        let digits = LabelledDigits::open(&fixture()).unwrap();
        let count = |class: u8| digits.labels.iter().filter(|&&label| label == class).count();
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(count), [10; 10]);
        assert_eq!((digits.pixels.len(), digits.values(0..2).len()), (100 * PIXELS, 2 * PIXELS));
        // A one is thin, a zero is not.
        let ink = |class: u8| -> f64 {
            (0..100)
                .filter(|&at| digits.labels[at] == class)
                .map(|at| digits.values(at..at + 1).iter().sum::<f64>())
                .sum()
        };
        assert!(ink(1) < 0.6 * ink(0), "{} and {}", ink(1), ink(0));
    }

    #[test]
    fn the_last_of_each_class_are_kept_out() {
        let mut labels = vec![3; KEPT_OUT + 2];
        labels.insert(1, 7);
        let kept = LabelledDigits { pixels: Vec::new(), labels }.kept_out();
        assert_eq!(kept[..4], [false, true, false, true]);
        assert_eq!(kept.iter().filter(|kept| **kept).count(), KEPT_OUT + 1);
    }

    /// Packed in the fixture.
    const IMAGE_FILE: &str = "digits-images-idx3-ubyte";
    const LABEL_FILE: &str = "digits-labels-idx1-ubyte";

    /// What is said of the fixture with one of its files changed.
    fn said(file: &str, change: impl Fn(&mut Vec<u8>)) -> String {
        let folder = tempfile::tempdir().unwrap();
        for name in [IMAGE_FILE, LABEL_FILE] {
            let kept = if name == IMAGE_FILE { format!("{name}.xz") } else { name.into() };
            let mut bytes = packed::content(std::fs::read(fixture().join(kept)).unwrap()).unwrap();
            if name == file {
                change(&mut bytes);
            }
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let said = LabelledDigits::open(folder.path()).unwrap_err().to_string();
        said.replace(&format!("{}/", folder.path().display()), "")
    }

    #[rstest]
    #[case(IMAGE_FILE, 7, "offset 0: expected a header of 16 bytes (images: bytes in three dimensions), found 7 bytes")]
    #[case(IMAGE_FILE, 1000, "offset 16: expected 78400 bytes for 100 of them, found 984 bytes")]
    #[case(LABEL_FILE, 0, "offset 0: expected a header of 8 bytes (labels: bytes in one dimension), found 0 bytes")]
    #[case(LABEL_FILE, 107, "offset 8: expected 100 bytes for 100 of them, found 99 bytes")]
    fn a_truncated_file_is_named(#[case] file: &str, #[case] length: usize, #[case] expected: &str) {
        assert_eq!(said(file, |bytes| bytes.truncate(length)), format!("{file}: {expected}"));
    }

    #[rstest]
    #[case(
        IMAGE_FILE,
        3,
        1,
        "offset 0: expected the magic number 0x00000803 (images: bytes in three dimensions), found 0x00000801"
    )]
    #[case(
        LABEL_FILE,
        2,
        9,
        "offset 0: expected the magic number 0x00000801 (labels: bytes in one dimension), found 0x00000901"
    )]
    #[case(IMAGE_FILE, 11, 27, "offset 8: expected 28 rows a digit, found 27")]
    #[case(IMAGE_FILE, 15, 29, "offset 12: expected 28 columns a digit, found 29")]
    #[case(IMAGE_FILE, 7, 0, "offset 4: expected one at the least, found 0")]
    #[case(LABEL_FILE, 20, 10, "offset 20: expected a label below 10, found 10")]
    fn a_wrong_byte_is_named(#[case] file: &str, #[case] at: usize, #[case] value: u8, #[case] expected: &str) {
        assert_eq!(said(file, |bytes| bytes[at] = value), format!("{file}: {expected}"));
    }

    #[test]
    fn counts_that_differ_are_named() {
        let said = said(LABEL_FILE, |bytes| bytes[7] = 99);
        let expected =
            format!("{LABEL_FILE}: offset 4: expected 100 labels, one for each image of {IMAGE_FILE}, found 99");
        assert_eq!(said, expected);
    }

    #[test]
    fn a_folder_without_digits_says_where_they_come_from() {
        let folder = tempfile::tempdir().unwrap();
        let said = |folder: &Path| LabelledDigits::open(folder).unwrap_err().to_string();
        assert!(said(folder.path()).ends_with("writes them, found 0 other files"), "{}", said(folder.path()));
        std::fs::write(folder.path().join("t10k-images-idx3-ubyte.gz"), "").unwrap();
        assert!(said(folder.path()).contains("unpack it with gunzip"), "{}", said(folder.path()));
        assert!(said(&folder.path().join("absent")).contains("bash ci/get-mnist.sh"));
    }
}
