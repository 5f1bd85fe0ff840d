# The schemas become C in the build tree: gen/job/NAME.pb-c.{h,c}.
find_program(PROTOC_C protoc-c REQUIRED)
set(gen ${CMAKE_BINARY_DIR}/gen/job)
file(MAKE_DIRECTORY ${gen})
set(schemas caffe job cluster onnx)
set(gen_sources)
foreach(schema ${schemas})
  add_custom_command(
    OUTPUT ${gen}/${schema}.pb-c.c ${gen}/${schema}.pb-c.h
    COMMAND ${PROTOC_C} --proto_path=${PROJECT_SOURCE_DIR}/proto --c_out=${gen}
            ${PROJECT_SOURCE_DIR}/proto/${schema}.proto
    DEPENDS ${PROJECT_SOURCE_DIR}/proto/${schema}.proto
    VERBATIM)
  list(APPEND gen_sources ${gen}/${schema}.pb-c.c ${gen}/${schema}.pb-c.h)
endforeach()
add_library(paceline_schemas STATIC ${gen_sources})
target_include_directories(paceline_schemas PUBLIC ${gen} ${CMAKE_BINARY_DIR}/gen)
target_link_libraries(paceline_schemas PUBLIC PkgConfig::PROTOBUF_C)
