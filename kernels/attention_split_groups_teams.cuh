// Which rounds of which heads a team of blocks walks, and in what order.
//
// A round is 64 keys of a head, 32 in f32. Where heads do not fill the device evenly, teams have as many rounds each all the
// same: the end of a head whose beginning the team before has, a whole head, and the beginning of another one. What a team has
// seen of the latter it lends to the next team, so that piece comes first. No team has less than a head then, so a head is of
// two at most. Of few heads, several teams have one.
#pragma once
#include "hopper.cuh"

namespace groups {

constexpr int KEYS = hopper::ROW_BYTES / int(sizeof(scalar_t));  // of a round: 64, or 32 in f32
constexpr int MOST_ROUNDS = 8;                                   // of a chapter

// How rounds are shared out.
struct Split {
    int rounds;     // of a head
    int share;      // heads of all teams, where these lend, or rounds of a team, where a head has several
    int team_bits;  // of teams that lend, a power of two
    int part_bits;  // of the blocks of a team
    int stages;     // rounds of a group that are under way
};

// Rounds of a head that follow each other.
struct Piece {
    int head;
    int first;
    int rounds;
};
enum Kind { WHOLE, LENT, REST, KINDS };

// What teams have: a head each; as much as each other; or a part of the same head, of which none is lent.
enum Sharing { NOTHING, LENDING, GATHERING };

template <Sharing SHARING>
struct Course {
    static constexpr int PIECES = SHARING == LENDING ? KINDS : 1;

    const int team, rounds;        // a team among all, or of a head; rounds of a head
    int head, next;                // the first one, and the one that is lent
    int begun, lent, rest, total;  // rounds

    __device__ __forceinline__ Course(const Split& split, int team)
        : team(team), rounds(split.rounds) {
        const int from = team * split.share, to = from + split.share;
        head = from >> split.team_bits;
        next = to >> split.team_bits;
        const int first = from * rounds >> split.team_bits, end = to * rounds >> split.team_bits;
        begun = first - head * rounds;
        lent = end - next * rounds;
        rest = begun > 0 ? rounds - begun : 0;
        total = end - first;
        if (SHARING == NOTHING) head = team, total = rounds;
        if (SHARING != LENDING) lent = rest = 0;
        begun = 0;
        if (SHARING == GATHERING) {
            head = blockIdx.y;
            begun = from;
            total = min(to, rounds) - from;
        }
    }

    // Pieces in the order in which they are walked: what is lent, the rest of a head, a whole one.
    static constexpr int FIRST = SHARING == LENDING ? LENT : KINDS;
    static constexpr int LAST = KINDS;
    static __device__ __forceinline__ constexpr int kind(int i) { return i % KINDS; }

    __device__ __forceinline__ Piece piece(int kind) const {
        if (kind == LENT) return {next, 0, lent};
        if (kind == REST) return {head, rounds - rest, rest};
        return {head + (rest > 0), begun, total - lent - rest};
    }
    __device__ __forceinline__ int begins(int kind) const { return kind == LENT ? 0 : kind == REST ? lent : lent + rest; }
    __device__ __forceinline__ int ends(int kind) const { return kind == LENT ? lent : kind == REST ? lent + rest : total; }
    __device__ __forceinline__ int kind_of(int round) const { return round < lent ? LENT : round < lent + rest ? REST : WHOLE; }
    __device__ __forceinline__ int last() const { return total > lent + rest ? WHOLE : REST; }
};

// A walker's rounds of a team's: every 2^bits-th. Chapters but the first are as long as can be: a short last one would be
// there before its weights are.
struct Stride {
    int bits;

    // Of a piece that begins so many rounds before the walker's first one, or after one of them.
    __device__ __forceinline__ int first(int ahead) const { return ahead & (1 << bits) - 1; }
    __device__ __forceinline__ int length(int rounds) const { return rounds << bits; }
    __device__ __forceinline__ int count(int from, int end) const { return (end - from + (1 << bits) - 1) >> bits; }
    static __device__ __forceinline__ int of_first_chapter(int count) { return (count - 1) % MOST_ROUNDS + 1; }
};

// What a walker asks for next: of a chapter after the other, the keys, then the values.
template <Sharing SHARING>
struct Cursor {
    const Course<SHARING>& course;
    const Stride stride;
    int at;  // of the team's rounds
    int chapter, chapter_end;
    int piece_end;
    bool keys = true;

    __device__ __forceinline__ Cursor(const Course<SHARING>& course, int walker, const Stride& stride)
        : course(course), stride(stride), at(walker) {}
    __device__ __forceinline__ bool goes_on() const { return at < course.total; }
    __device__ __forceinline__ int head() const { return course.piece(course.kind_of(at)).head; }
    __device__ __forceinline__ int key() const {
        const int kind = course.kind_of(at);
        return (course.piece(kind).first + at - course.begins(kind)) * KEYS;
    }
    // Before the first step.
    __device__ __forceinline__ void begin_piece() {
        piece_end = course.ends(course.kind_of(at));
        chapter = at;
        chapter_end = at + stride.length(Stride::of_first_chapter(stride.count(at, piece_end)));
    }
    __device__ __forceinline__ void next() {
        at += stride.length(1);
        if (at < chapter_end) return;
        if (keys) {
            at = chapter;
        } else {
            chapter = at;
            chapter_end = at + stride.length(MOST_ROUNDS);
            if (at >= piece_end) begin_piece();
        }
        keys = !keys;
    }
};

}  // namespace groups
