# What the makefiles of the C++ rivals share. They set NAME, SOURCES (*.cpp of the folder) and LIBS, and may add to
# GENERATED (objects of generated code) and GENERATED_HEADERS. OUT is the folder for products.

OUT ?= out
BUILD := $(OUT)/$(NAME).build
PEERS := $(dir $(lastword $(MAKEFILE_LIST)))..

CXX := g++
CXXFLAGS := -std=c++20 -O3 -flto=auto -DNDEBUG -Wall -Wextra -pthread -I. -I$(PEERS)/cpppeer -isystem $(BUILD)
LDFLAGS := -O3 -flto=auto -pthread

OBJECTS := $(SOURCES:%.cpp=$(BUILD)/%.o)

$(OUT)/$(NAME): $(OBJECTS) $(GENERATED)
	$(CXX) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/%.o: %.cpp Makefile $(wildcard *.hpp $(PEERS)/cpppeer/*) $(GENERATED_HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -c -o $@ $<

$(BUILD)/gen/%.o: $(BUILD)/%.cc
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -w -c -o $@ $<
