// The steps of planning, in the order in which plan/recipe.cpp takes them.
#pragma once

#include "interpreter/plan/draft.h"

namespace gradus::interpreter {

// Given    a draft of a segment
// Execute  gives sizes their numbers, and finds layouts, views, work and pointers of every
//          instruction. Throws Error where sizes do not fit, with the place of the instruction
// Result   each instruction has its work, or is a view, a constant, or nothing
void bind(Draft& draft);

// Given    all instructions are bound
// Execute  what at least two products read in another order than it lies in gets a place in the
//          buffer where it lies so, and they are bound to that
// Result   the same bits: which order an operand lies in decides none
void share_copies(Draft& draft);

// Given    all instructions are bound
// Execute  finds groups of pointwise instructions and reductions; each that has a kernel, or is
//          given one, runs where one of its members stands, and the others do nothing
// Result   what only members read has no memory (Local::Kind::inside)
void group(Draft& draft);

// Given    groups are found
// Execute  splits calls of ranks into one that begins and a wait before the first instruction that
//          touches what it gives, where others run in between
// Result   what such a call reads and writes lives until the wait
void overlap(Draft& draft);

// Given    groups are found, and calls of ranks split
// Execute  asks for code for work; that of a nest is what its kernel gives for the frame
// Result   each instruction with something to do has code, and it is known how much scratch memory
//          that takes: which is why it comes before places
void make(Draft& draft);

// Given    all instructions have their code
// Result   the plan says where values lie, and what happens when
void place(Draft& draft);

// Throws InternalError where an invariant of a step that is done does not hold:
//   P1  (bind)  what is read is made before, or is there when the segment starts
//   P2  (bind)  an instruction's pointers are its own slice, and name known values
//   P3  (group) what a group stores or reads is made and read by its members' order: its inputs
//               stand outside of it and before the place where it runs, and its readers behind it
//   P4  (make)  what has results in memory of its own that somebody reads has code, or has no
//               elements
//   P5  (place) slots that are alive at one step do not overlap
//   P6  (place) every pointer into the buffer lies inside of it
//   P7  (place) every tensor that is made here is let go once, or leaves the segment
//   P8  (overlap) what a call of ranks reads and gives lives until its end, and no instruction
//               before that touches what it gives
void verify_bound(const Draft& draft);
void verify_grouped(const Draft& draft);
void verify_overlapped(const Draft& draft);
void verify_made(const Draft& draft);
void verify_placed(const Draft& draft);

// The draft as text, as it is after a step.
std::string print(const Draft& draft);

}  // namespace gradus::interpreter
