# runs_lmx(NAME): the tests of this binary run bin/lmx, with every plugin and those that tests/plugin builds.
function(runs_lmx name)
  add_dependencies(${name} lmx_exe lmx_all plugin_tests test_plugin_good_fields)
  target_link_libraries(${name} PRIVATE nlohmann_json::nlohmann_json)
endfunction()
